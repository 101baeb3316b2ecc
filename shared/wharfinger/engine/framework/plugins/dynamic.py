"""Dynamic: nodes whose measured load is too high are out, the others are the better the less they are loaded
(crane-scheduler's plugin).

Where nothing is measured, or no policy says what of it matters, it has nothing to say. A DaemonSet's pod belongs on
its node however busy that is: it passes the filter. The rules are those of `engine.load.book`.

crane calls its refusal `Unschedulable`, and so has a scheduler evict pods that cannot help, since the load of their
node is what it was measured to be until the next measurement. Here no eviction is tried, unless the arguments ask for
crane's way."""

from __future__ import annotations

from collections.abc import Sequence

from wharfinger.domain.node import Pod
from wharfinger.domain.scheduler import Arguments
from wharfinger.engine.framework.protocols import Cycle, Hint
from wharfinger.engine.framework.snapshot import NodeInfo
from wharfinger.engine.framework.status import SKIP, Status, unresolvable, unschedulable
from wharfinger.engine.load.book import PASSES

EXEMPT_OWNER = "DaemonSet"


class Dynamic:
    name = "Dynamic"

    def __init__(self, arguments: Arguments) -> None:
        self._arguments = arguments.dynamic

    def pre_filter(self, cycle: Cycle, pod: Pod) -> Status | None:
        if cycle.snapshot.load is None or not cycle.snapshot.load.book.named:
            return SKIP
        return SKIP if pod.requirements.traits.owner == EXEMPT_OWNER else None

    def filter(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> Status | None:
        load = cycle.snapshot.load
        assert load is not None, "without load the filter is skipped"
        verdict = load.judge(node.name, self._arguments, average=0)  # no score is asked for
        if verdict.verdict == PASSES:
            return None
        message = verdict.message(node.name)
        return unschedulable(message) if self._arguments.stale == "crane" else unresolvable(message)

    def pre_score(self, cycle: Cycle, pod: Pod, nodes: Sequence[NodeInfo]) -> Status | None:
        load = cycle.snapshot.load
        if load is None or load.book.idle:
            return SKIP
        cycle.data[self.name] = load.book.average_load(load.now)
        return None

    def score(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> int:
        load = cycle.snapshot.load
        assert load is not None, "without load the score is skipped"
        return load.judge(node.name, self._arguments, cycle.data[self.name]).score

    def hints(self) -> tuple[Hint, ...]:
        return Hint("load"), Hint("node/add")
