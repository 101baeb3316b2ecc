"""Karpenter's disruption: nodes that can be removed because they are empty, drifted, expired, or
cheaper to replace or do without.

`cluster_snapshot` is the input; `candidates` which nodes may be disrupted, and why the others may
not; `costs` what disrupting them costs; `budgets` how many at once; `removal` simulates where their
pods would go; `methods` finds commands.
"""
