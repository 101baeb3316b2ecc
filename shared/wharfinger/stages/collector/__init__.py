"""What the collector thinks: from the objects of one member cluster to facts.

`state` keeps what is known and says which facts differ from those sent last. Pure: the objects come
as domain values, the time as a number.
"""

from wharfinger.stages.collector.state import ObservedCluster, Sighted

__all__ = ["ObservedCluster", "Sighted"]
