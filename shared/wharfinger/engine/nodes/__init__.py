"""One cluster from the inside: which nodes fit a replica, which is best, how many more fit.

`columns` holds the nodes, as rows for the scalar path and as int64 columns for the vector path; `classes` turns requirements
into column numbers and thresholds; `fit` says whether and on which devices, or why not; `score` how good; `place` keeps the
best node of each class at hand; `count` how many more of each class fit; `occupancy` keeps the book of who holds what, and
is the one place where facts become free columns.

Only integers reach a decision: no float is ever compared or added here.
"""
