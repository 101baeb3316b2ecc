"""Karpenter: pools of nodes, claims, and the schedules of their budgets."""
