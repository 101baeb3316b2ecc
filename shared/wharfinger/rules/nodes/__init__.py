"""The rules that choose nodes, one file each: the filter and score plugins of kube-scheduler, and
our own.

`domain.scheduler_plugins.BUILT_IN` is the ordered list. Each name in it is the name of a class
here, in the module of the same name in snake case.
"""
