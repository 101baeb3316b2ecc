"""Descheduler: proposes failover, eviction and the removal of empty nodes. The stage that owns the
target decides."""
