"""Collector: what the joined clusters are, read from their API servers."""
