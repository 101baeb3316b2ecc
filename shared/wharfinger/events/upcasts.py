"""How data of an older version becomes the current one: one function a step, applied until none is
left.

Empty while every type is at its first version. A step takes the old class and returns the next one:
`UPCASTS[OldData] = new_from_old`.
"""

from __future__ import annotations

from collections.abc import Callable

from wharfinger.domain.value import Value

UPCASTS: dict[type[Value], Callable[[Value], Value]] = {}


def upcast(data: Value) -> Value:
    while (step := UPCASTS.get(type(data))) is not None:
        data = step(data)
    return data
