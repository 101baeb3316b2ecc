"""The arithmetic of placement: which cluster, which node, how many. Pure; knows no stream and no event."""
