"""What a process sets of Python and the C library: what it does not use any more goes back to the
system, its event loops are those of libuv, and a thread that computes lets others in."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest

from wharfinger.runtime import interpreter
from wharfinger.runtime.interpreter import Cleanup

BETWEEN = """
import gc
import psutil
from wharfinger.runtime.interpreter import _TRIM, Cleanup

gc.collect()
large, kept = [], []
for _ in range(500):
    large.append(bytearray(b"x" * 100_000))
    kept.append(bytearray(b"x" * 2_000))  # so that no heap ends with what is free
del large
resident = psutil.Process().memory_info().rss
Cleanup().free()
print(_TRIM is not None, resident - psutil.Process().memory_info().rss)
"""

HEAPS = """
import ctypes
import sys
import threading
from wharfinger.runtime.interpreter import _MALLOPT, one_heap

if sys.argv[2] == "one":
    one_heap()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
together = threading.Barrier(4)


def allocate():
    together.wait()
    libc.malloc(3000)
    together.wait()


threads = [threading.Thread(target=allocate) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
if _MALLOPT is None:
    print(0)
else:
    libc.fopen.restype = ctypes.c_void_p
    file = ctypes.c_void_p(libc.fopen(sys.argv[1].encode(), b"w"))
    libc.malloc_info(0, file)
    libc.fclose(file)
    print(open(sys.argv[1]).read().count("<heap nr="))
"""


def test_all_threads_share_one_heap(tmp_path: Path) -> None:
    def heaps(asked: str) -> int:
        command = [sys.executable, "-c", HEAPS, str(tmp_path / asked), asked]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    found = heaps("one")
    if not found:
        pytest.skip("this C library cannot be told")
    assert found == 1
    assert heaps("as it is") > 1


def test_free_pages_between_used_ones_are_returned() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BETWEEN], capture_output=True, text=True, check=True
    )
    has_trim, returned = done.stdout.split()
    if has_trim == "False":
        pytest.skip("this C library cannot return them")
    assert int(returned) > 25_000_000, "half of what was freed"


class Ring:
    def __init__(self) -> None:
        self.me = self


def old_cycle() -> weakref.ref[Any]:
    """Of an object that nothing else refers to, and that two collections have passed over."""
    ring = Ring()
    gc.collect(0)
    gc.collect(1)
    return weakref.ref(ring)


@pytest.mark.usefixtures("looked_at_again")
def test_cycles_that_have_outlived_young_collections_are_freed_each_time() -> None:
    cleanup = Cleanup()
    for _ in range(3):
        ring = old_cycle()
        cleanup.free()
        assert ring() is None


@pytest.mark.usefixtures("looked_at_again")
def test_what_stands_is_looked_at_once() -> None:
    cleanup = Cleanup()
    kept = [[number] for number in range(10_000)]
    cleanup.free()
    assert len(gc.get_objects()) < len(kept)


@pytest.mark.usefixtures("looked_at_again")
def test_cycles_that_were_in_use_are_freed_by_a_look_at_all_objects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 0.0
    monkeypatch.setattr(interpreter, "monotonic", lambda: now_s)
    cleanup = Cleanup()
    ring = Ring()
    known = weakref.ref(ring)
    cleanup.free()
    del ring
    cleanup.free()
    assert known() is not None
    now_s = interpreter.ALL_AFTER_S
    cleanup.free()
    assert known() is None


LOOPS = """
import asyncio
from wharfinger.runtime.interpreter import fast_loops

fast_loops()


async def module():
    return type(asyncio.get_running_loop()).__module__


async def main():
    print(await module(), await asyncio.to_thread(asyncio.run, module()))


asyncio.run(main())
"""


def test_the_loops_of_all_threads_are_those_of_libuv() -> None:
    done = subprocess.run([sys.executable, "-c", LOOPS], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["uvloop", "uvloop"]


async def test_tests_run_on_them_too() -> None:
    assert type(asyncio.get_running_loop()).__module__ == "uvloop"


TURNS = """
import sys
from wharfinger.runtime.interpreter import TURN_S, short_turns

before_s = sys.getswitchinterval()
short_turns()
print(TURN_S == sys.getswitchinterval() < before_s)
"""


def test_a_thread_that_waits_for_the_interpreter_gets_it_sooner() -> None:
    """How much sooner is not measured here: that depends on the load."""
    done = subprocess.run([sys.executable, "-c", TURNS], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"]
