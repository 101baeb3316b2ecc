"""Descheduler: proposes failover, eviction and the removal of empty nodes; whoever owns the target decides."""
