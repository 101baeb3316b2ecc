"""One cluster from the inside: which nodes fit a replica, which is best, how many more fit.

`columns` holds the nodes, as rows for the scalar path and as int64 columns for the vector path; `tallies` counts the
pods that somebody asks about, node by node; `classes` turns requirements into column numbers and thresholds. A
profile meets a class in `standing` (what a node's facts say), `forms` (what is asked and how it scores), `relations`
(what other pods mean) and `asked` (what only the framework's plugins know); `kernels` are the loops over all nodes,
`compiled` their machine code; `place` chooses by them, one replica or a batch, and `message` says why not. `fit` says
on which devices; `count` how many more of each class fit; `occupancy` keeps the book of who holds what, and is the
one place where facts become free columns.

Integers decide; where a rule of kube-scheduler has doubles they are computed in one fixed order (see `kernels`).
"""
