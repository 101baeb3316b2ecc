"""Nodes that can go: empty, drifted, expired, or cheaper to do without or to replace. Karpenter's disruption.

`scene` is what is looked at; `candidates` which nodes may be touched, and why the others may not; `costs` what touching them
costs; `budgets` how many at once; `removal` whether what is on them has a place elsewhere; `methods` finds commands.
"""
