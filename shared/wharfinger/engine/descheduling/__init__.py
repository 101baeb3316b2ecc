"""Pods that should not be where they are, by rules that users choose: the descheduler's strategies.

Pure: a strategy sees one cluster as plain values and names pods, in order, each with its reason. It evicts nothing and moves
nothing; whoever asked makes sure that there is a place first.
"""
