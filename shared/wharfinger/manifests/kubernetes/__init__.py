"""Kubernetes: workloads and nodes, what else of a cluster pods are placed by, and configurations of
its scheduler."""
