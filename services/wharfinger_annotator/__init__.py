"""Annotator: measured load of nodes from Prometheus, and how hot their recent bindings make
them."""
