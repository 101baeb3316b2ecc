"""The descheduler: its policy and the arguments of its plugins."""
