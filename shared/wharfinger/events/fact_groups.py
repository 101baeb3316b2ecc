"""Facts of member clusters that are reported as a group: the quotas of a namespace, the pods of a
node.

One event holds the whole group. To report one member, the writer has to know the other members and
report them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeVar

K = TypeVar("K", bound=tuple[str, ...])
V = TypeVar("V")


class Shelves(Generic[K, V]):
    """Keys begin with the cluster. Things have names within their key. `_found`: where a name was
    seen, and may lie still."""

    def __init__(self, known: Mapping[K, Iterable[tuple[str, V]]]) -> None:
        self._lying = {key: dict(things) for key, things in known.items()}
        self._touched: dict[K, None] = {}
        self._found: dict[tuple[str, str], dict[K, None]] = {}
        for key, things in self._lying.items():
            for name in things:
                self._found.setdefault((key[0], name), {})[key] = None

    def put(self, key: K, name: str, thing: V) -> None:
        self._lying.setdefault(key, {})[name] = thing
        self._found.setdefault((key[0], name), {})[key] = None
        self._touched[key] = None

    def take(self, key: K, name: str) -> None:
        """Nothing where it does not lie there."""
        if self._lying.get(key, {}).pop(name, None) is not None:
            self._touched[key] = None

    def take_anywhere(self, cluster: str, name: str) -> None:
        """From wherever in the cluster it lies."""
        for key in self._found.pop((cluster, name), {}):
            self.take(key, name)

    def clear(self, cluster: str) -> None:
        for key in [key for key in self._lying if key[0] == cluster]:
            self._lying[key] = {}
            self._touched[key] = None

    def touched(self) -> Iterator[tuple[K, tuple[V, ...]]]:
        """What lies now wherever something was put or taken, in order of name."""
        for key in self._touched:
            yield key, tuple(thing for _, thing in sorted(self._lying[key].items()))
