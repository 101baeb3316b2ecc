"""Which clusters a placement selects: Open Cluster Management's rules, over columns of a whole fleet. Start with `select`."""
