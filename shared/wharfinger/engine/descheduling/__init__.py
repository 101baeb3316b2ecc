"""The strategies of the Kubernetes descheduler: pods that should not be where they are, by rules
that users configure.

Pure: a strategy reads one cluster as plain values and names pods in order, each with a reason. It
evicts and moves nothing; the caller makes sure that another place exists first.
"""
