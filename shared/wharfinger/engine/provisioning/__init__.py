"""Nodes to be made for pods that fit nowhere, out of pools and instance types: Karpenter's provisioning.

`problem` is what is asked and answered; `requirements` the algebra of labels; `catalogue` the instance types as columns;
`templates` what a pool can make; `solve` puts pods on nodes that are there, on their way, or new: `shapes` and `topology` say what
pods are to it, `states` what a node can still be, `packing` lays the arrays that `kernels` go through; `bound` says how far that
is from the cheapest there could be.
"""
