"""What a read from the broker says when its error has no words, as a TimeoutError."""

from __future__ import annotations

import pytest

from wharfinger.runtime import timeline
from wharfinger.runtime.backends import CAPABILITIES, Backend, BackendError


async def test_a_time_that_was_over_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def too_slow(_backend: Backend) -> dict[str, int]:
        raise TimeoutError

    monkeypatch.setattr(timeline, "partition_counts", too_slow)
    backend = Backend("127.0.0.1:1", "postgresql://nowhere", CAPABILITIES["memory"])
    with pytest.raises(BackendError, match=r"wharfinger\.timeline: TimeoutError$"):
        await timeline.read_timeline(backend, lambda topic: topic)
