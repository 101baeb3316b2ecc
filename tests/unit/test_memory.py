"""What a process does not use any more goes back to the system."""

from __future__ import annotations

import subprocess
import sys

import pytest

BETWEEN = """
import gc
import psutil
from wharfinger.runtime.memory import _TRIM, free_unused

gc.collect()
large, kept = [], []
for _ in range(500):
    large.append(bytearray(b"x" * 100_000))
    kept.append(bytearray(b"x" * 2_000))  # so that no heap ends with what is free
del large
resident = psutil.Process().memory_info().rss
free_unused()
print(_TRIM is not None, resident - psutil.Process().memory_info().rss)
"""


def test_free_pages_between_used_ones_are_returned() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BETWEEN], capture_output=True, text=True, check=True
    )
    has_trim, returned = done.stdout.split()
    if has_trim == "False":
        pytest.skip("this C library cannot return them")
    assert int(returned) > 25_000_000, "half of what was freed"
