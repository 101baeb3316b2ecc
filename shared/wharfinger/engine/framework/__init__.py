"""kube-scheduler's scheduling framework: plugins at extension points, combined into profiles, run
in a cycle.

`snapshot` is the input of a cycle: nodes with their pods, and the cluster's other objects.
`protocols` defines the extension points, `status` the results of plugins. `registry` lists the
plugins, `profile` instantiates a configured profile, `cycle` runs it for one pod over all nodes and
keeps every result: which plugin refused which node, every score, and the user-facing message.

It calls every plugin for every node. It is the reference implementation, used for explanations,
extenders and users' own plugins. `engine.nodes` places in bulk over arrays and must choose the same
nodes.
"""
