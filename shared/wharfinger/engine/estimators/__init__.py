"""How many more replicas fit into a cluster, from whatever is known of it. The least over all that say something counts.

`summary` reads the totals and grades that a cluster's agent reports, `nodes` its nodes and the pods on them, `quotas` what its
namespaces may ask for. `packing` puts whole sets of different pods into nodes, for the workloads that have several kinds of them.

All of them are functions of facts; who deducts what was decided meanwhile, and when, is the business of `stages.estimator` and
`stages.fleet`. The rules are Karmada's (general estimator, scheduler-estimator and its quota plugin) where nothing else is said;
`strict` keeps to them also where they let a cluster be given more than it can hold.
"""
