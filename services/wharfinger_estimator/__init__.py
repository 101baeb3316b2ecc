"""Estimator: what still fits into each cluster, counted from its nodes, pods and assignments."""
