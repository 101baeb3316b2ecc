"""`python -m wharfinger_cli.heartbeats`: repeats what is known of some clusters, as the agents in
them would.

A process of its own, because a heartbeat that waits for other work is a missing heartbeat. It reads
lines on standard input, each a JSON list of the clusters that are alive from now on, and answers
each with the same list once no other cluster will be repeated any more. It ends at the end of its
input, and so with the process that started it. `Heartbeats` is that process as the demonstration
sees it.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from wharfinger.answers.submit import submit
from wharfinger.domain.text import escaped
from wharfinger.events.accepted import accepted
from wharfinger.events.clusters import ClusterObserved
from wharfinger.runtime.children import open_log
from wharfinger.runtime.ledger import Transient
from wharfinger.runtime.processes import last_lines
from wharfinger.runtime.settings import ENV_PREFIX, load_settings
from wharfinger_cli.connection import opened_ledger
from wharfinger_cli.facts import known_facts
from wharfinger_cli.failures import CommandError, expected_failure

BEAT_S = 0.5
ANSWER_TIMEOUT_S = 300.0
LOG_NAME = "heartbeats"


class Heartbeats:
    """`alive`: the clusters that are repeated now."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.alive: frozenset[str] = frozenset()
        self._process = process
        self._log = log

    async def keep(self, clusters: Collection[str]) -> None:
        """These and no others are repeated from now on. They must be known to the plane.
        CommandError: the process has ended."""
        assert self._process.stdin is not None, "made with pipes"
        assert self._process.stdout is not None, "made with pipes"
        try:
            self._process.stdin.write(json.dumps(sorted(clusters)).encode() + b"\n")
            self._process.stdin.flush()
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                answer = await asyncio.to_thread(self._process.stdout.readline)
        except (TimeoutError, ConnectionError):
            answer = b""
        if not answer:
            raise CommandError(self.failure() or f"heartbeats: no answer in {ANSWER_TIMEOUT_S:g} s")
        self.alive = frozenset(clusters)

    def failure(self) -> str:
        """Why the process has ended; "" while it runs."""
        if self._process.poll() is None:
            return ""
        return (
            f"heartbeats: ended with {self._process.returncode}: "
            f"{last_lines(self._log.read_text()) or 'no message'}"
        )


@asynccontextmanager
async def heartbeats(data_dir: Path) -> AsyncIterator[Heartbeats]:
    """The process, for as long as the block lasts."""
    process, log = _started(data_dir)
    try:
        yield Heartbeats(process, log)
    finally:
        process.kill()  # nothing is lost: each message is one transaction
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                if pipe is not None:
                    pipe.close()


def _started(data_dir: Path) -> tuple[subprocess.Popen[bytes], Path]:
    """Not awaited: the start of a process must not be cut off by a cancellation, which would leave
    it behind."""
    with open_log(data_dir, LOG_NAME) as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "wharfinger_cli.heartbeats"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, f"{ENV_PREFIX}DATA_DIR": str(data_dir)},
            start_new_session=True,  # Ctrl-C at the terminal is for the demonstration
        )
    return process, Path(log.name)


async def repeat(lines: asyncio.Queue[str]) -> None:
    """Until an empty line comes."""
    async with opened_ledger(load_settings()) as ledger:
        known = await known_facts(ledger)
        alive: frozenset[str] = frozenset()
        while True:
            try:
                async with asyncio.timeout(BEAT_S):
                    line = await lines.get()
                if not line:
                    return
                alive, known = frozenset(json.loads(line)), await known_facts(ledger)
                sys.stdout.write(line)
                sys.stdout.flush()
            except TimeoutError:
                pass
            beats = [
                accepted(ClusterObserved(cluster))
                for cluster in known.clusters
                if cluster.name in alive
            ]
            try:
                await submit(ledger, beats, known, again=True)
            except Transient:
                known = await known_facts(ledger)  # the next one comes soon


def main() -> int:
    async def read_and_repeat() -> None:
        lines: asyncio.Queue[str] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def read() -> None:
            lines.put_nowait(line := sys.stdin.readline())
            if not line:
                loop.remove_reader(sys.stdin)

        loop.add_reader(sys.stdin, read)
        await repeat(lines)

    try:
        asyncio.run(read_and_repeat())
    except Exception as error:
        failure = error if isinstance(error, CommandError) else expected_failure(error)
        if failure is None:
            raise
        print("\n".join(map(escaped, failure.lines)), file=sys.stderr)
        return failure.code
    return 0


if __name__ == "__main__":
    sys.exit(main())
