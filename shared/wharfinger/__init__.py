"""Wharfinger: an event-sourced placement control plane for fleets of Kubernetes clusters.

The layers, each importing only those to its right:
`runtime` > `stages` > `kernel` > `engine` > `events` > `manifests` > `domain`.
"""

__version__ = "0.6.0"
