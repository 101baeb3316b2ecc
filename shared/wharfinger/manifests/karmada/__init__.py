"""Karmada: member clusters, policies, bindings, and what keeps a fleet in order."""
