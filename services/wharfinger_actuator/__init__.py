"""Actuator: makes joined clusters what was decided, as far as their mode and verbs allow."""
