"""Scheduler: the only service that decides, in two stages, each an app of its own."""
