"""Which member clusters a binding goes to, and how many replicas each gets.

`filters` says which clusters are feasible, `estimate` how much fits into them, `select` keeps to the spread constraints,
`division` divides the replicas. The rules are Karmada's, ties included; the arithmetic is in whole numbers throughout.
"""
