"""Karpenter's provisioning: new nodes for pods that fit nowhere, from node pools and instance
types.

`problem` has input and output; `requirements` the algebra of label requirements; `catalogue` the
instance types as columns; `templates` what a pool can create; `solve` packs pods onto existing,
pending and new nodes: `shapes` and `topology` compile the pods, `states` the possible futures of a
node, `packing` builds the arrays that `kernels` iterate over; `bound` computes a lower bound on the
price.
"""
