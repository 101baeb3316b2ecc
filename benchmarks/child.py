"""A process of the benchmark's own at the other end of a pipe. It ends when the pipe is closed, so
also when the benchmark is killed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

END_S = 5.0


@contextmanager
def a_child(run: Callable[..., None], *arguments: object) -> Iterator[Connection]:
    """Calls `run(pipe, *arguments)` in a new process; `run` returns when the pipe ends."""
    context = get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=run, args=(theirs, *arguments), daemon=True)
    process.start()
    theirs.close()  # else its end would not be noticed
    try:
        yield mine
    finally:
        mine.close()
        process.join(END_S)
        if process.is_alive():
            process.kill()
            process.join()


async def answer_of(pipe: Connection, question: object) -> Any:
    """RuntimeError: the process ended instead of answering."""

    def asked() -> Any:
        pipe.send(question)
        return pipe.recv()

    try:
        return await asyncio.to_thread(asked)
    except (EOFError, OSError):
        raise RuntimeError("a process of the benchmark ended by itself") from None
