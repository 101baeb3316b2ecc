"""Placement within one cluster: which nodes fit a replica, which is best, and how many more
replicas fit.

`columns` holds the nodes, as rows for scalar access and as int64 columns for vector access;
`tallies` counts pods per node for each selector; `classes` compiles requirements into column
numbers and thresholds.

The rules of a profile (`wharfinger.rules.nodes`) say which nodes are refused and how they score.
They are known here only by their array form: `forms` defines the forms, `profile_rules` sorts the
rules of a profile by form, `verdicts` numbers their refusals. The forms are evaluated by `facts`
and `node_facts` (node facts), `resources` (requests and resource scores), `counting` and `topology`
(other pods) and `fallback` (rules without a form, node by node).

`kernels` are the loops over all nodes, compiled ahead of time by `engine.machine_code`; `place`
uses them to choose nodes for one replica or a batch; `message` renders the refusals,
`counterfactual` finds the changes that would make a refused node feasible. `fit` finds the devices;
`count` the remaining capacity per class; `occupancy` records what runs where, and is the only place
where facts become free amounts.

Integers decide; where a rule of kube-scheduler uses doubles they are computed in one fixed order
(see `kernels`).
"""
