"""Which clusters an OCM Placement selects: Open Cluster Management's rules, evaluated over columns
of a whole fleet. Start with `select`."""
