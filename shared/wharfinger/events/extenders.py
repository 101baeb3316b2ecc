"""What an HTTP extender answered: an input of the stream that asked, recorded in the round like a
tick, never sent over a topic.

A decision that depends on somebody outside is taken again from what he said then, not by asking him
again.
"""

from __future__ import annotations

from wharfinger.domain.value import Value


class ExtenderAnswered(Value, frozen=True):
    """`ask`: which question of `stream` this answers. `answer`: the body as it came, JSON text;
    empty where there is none: then `error` says why, in one line."""

    stream: str
    ask: str
    answer: str = ""
    error: str = ""
