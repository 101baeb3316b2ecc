"""The scheduling framework of kube-scheduler: plugins at extension points, joined into profiles, run in a cycle.

`snapshot` is what a cycle reads: nodes with the pods on them, and the cluster's other objects. `protocols` says what
a plugin is at each point, `status` how it says no. `registry` lists the plugins, `profile` makes a configured profile
runnable, `cycle` runs it for one pod over all nodes and keeps every answer: which nodes fell for what, every score,
the message users know.

It asks every plugin about every node by name, which makes it the readable truth: explanations, vectors and users' own
plugins go this way. `engine.nodes` places in bulk over arrays and must choose what this chooses."""
