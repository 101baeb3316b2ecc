"""Karmada's scheduling algorithm: which member clusters a binding goes to, and how many replicas
each gets.

`decide` answers one `Question` and returns its steps: the filters (`rules.clusters`) find the
feasible clusters, `estimate` their capacity, `select` applies the spread constraints, `division`
divides the replicas. Ties are broken as in Karmada. All arithmetic is on integers.
"""
