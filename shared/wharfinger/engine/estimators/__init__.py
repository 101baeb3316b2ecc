"""How many more replicas fit into a cluster. The estimators use different facts; the minimum over
those that have data counts.

`summary` uses the totals and resource models (grades) that a cluster's agent reports, `nodes` the
nodes and their pods, `quotas` the ResourceQuotas of its namespaces. `packing` packs whole sets of
different pods into nodes, for workloads with several components.

All are functions of facts. `stages.estimator` and `stages.fleet` deduct what was decided since. The
rules are Karmada's (general estimator, scheduler-estimator and its quota plugin) unless noted;
`strict` follows them even where they over-commit a cluster.
"""
