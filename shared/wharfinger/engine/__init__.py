"""The algorithms of placement: which cluster, which node, how many replicas. Pure functions; no
stream or event is known here."""
