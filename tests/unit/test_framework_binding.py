"""From the chosen node to the bound pod: the order of the steps, and that everything is let go when
one of them fails."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from tests.reference.kube_binding import BindResult, Failed, WaitingPod, finish, place, unreserve
from tests.unit.test_framework_cycle import POD, made, nodes

from wharfinger.domain.node import Pod
from wharfinger.engine.framework.cycle import Framework
from wharfinger.engine.framework.protocols import Cycle, WaitFor
from wharfinger.engine.framework.status import SKIP, Status, unschedulable


@dataclass
class Steps:
    """Writes down what it is asked, and answers as told."""

    name: str
    log: list[str]
    answers: dict[str, Status | WaitFor] = field(default_factory=dict)

    def _asked(self, step: str) -> Status | WaitFor | None:
        self.log.append(f"{self.name} {step}")
        return self.answers.get(step)

    def _status(self, step: str) -> Status | None:
        found = self._asked(step)
        assert not isinstance(found, WaitFor)
        return found

    def reserve(self, cycle: Cycle, pod: Pod, node: str) -> Status | None:
        return self._status("reserve")

    def unreserve(self, cycle: Cycle, pod: Pod, node: str) -> None:
        self._asked("unreserve")

    def permit(self, cycle: Cycle, pod: Pod, node: str) -> Status | WaitFor | None:
        return self._asked("permit")

    def pre_bind(self, cycle: Cycle, pod: Pod, node: str) -> Status | None:
        return self._status("pre-bind")

    def bind(self, cycle: Cycle, pod: Pod, node: str) -> Status | None:
        return self._status("bind")

    def post_bind(self, cycle: Cycle, pod: Pod, node: str) -> None:
        self._asked("post-bind")


def two(log: list[str], **answers: dict[str, Status | WaitFor]) -> tuple[Framework, Cycle]:
    """A and B at every point, before the binder that always binds."""
    a = Steps("A", log, {"bind": SKIP, **answers.get("a", {})})
    b = Steps("B", log, {"bind": SKIP, **answers.get("b", {})})
    chosen = made(a, b)
    binder = chosen.points["bind"]
    chosen.points["bind"] = (*binder[1:], binder[0])
    return chosen, chosen.begin(nodes("oslo"), POD).cycle


def test_a_pod_goes_through_all_steps_and_the_last_binder_binds_it() -> None:
    log: list[str] = []
    chosen, cycle = two(log)
    assert place(chosen, cycle, POD, "oslo", 0) == BindResult("oslo", "Binding")
    assert log == [
        "A reserve",
        "B reserve",
        "A permit",
        "B permit",
        "A pre-bind",
        "B pre-bind",
        "A bind",
        "B bind",
        "A post-bind",
        "B post-bind",
    ]
    assert [pod.uid for pod in cycle.snapshot.nodes["oslo"].pods] == [POD.uid]


@pytest.mark.parametrize("step", ["reserve", "permit", "pre-bind", "bind"])
def test_whichever_step_fails_all_let_go_in_reverse_order(step: str) -> None:
    log: list[str] = []
    chosen, cycle = two(log, a={step: unschedulable("no")})
    failed = place(chosen, cycle, POD, "oslo", 0)
    at = {"reserve": "reserve", "permit": "permit", "pre-bind": "preBind", "bind": "bind"}[step]
    assert isinstance(failed, Failed)
    assert (failed.at, failed.status) == (at, Status("Unschedulable", ("no",), "A"))
    assert log[-3:] == [f"A {step}", "B unreserve", "A unreserve"]
    assert cycle.snapshot.nodes["oslo"].pods == []


def test_a_pod_waits_for_every_plugin_that_wants_it_to() -> None:
    log: list[str] = []
    chosen, cycle = two(log, a={"permit": WaitFor(30)}, b={"permit": WaitFor(10)})
    waiting = place(chosen, cycle, POD, "oslo", 5_000_000)
    assert waiting == WaitingPod("oslo", 5_000_000, {"A": 30, "B": 10})
    assert isinstance(waiting, WaitingPod)
    assert waiting.ends_us == 15_000_000
    assert waiting.expired(14_999_999) is None
    late = waiting.expired(15_000_000)
    assert late == Status(
        "Unschedulable", ("rejected due to timeout after waiting 10s at plugin B",), "B"
    )
    one = waiting.allowed("B")
    assert (one.plugins, one.ends_us) == ({"A": 30}, 35_000_000)
    assert one.allowed("A").ends_us is None
    assert one.allowed("A").expired(10**12) is None
    assert "A bind" not in log
    assert finish(chosen, cycle, POD, "oslo") == BindResult("oslo", "Binding")


def test_a_pod_that_waited_in_vain_gives_back_its_place() -> None:
    log: list[str] = []
    chosen, cycle = two(log, a={"permit": WaitFor(30)})
    assert isinstance(place(chosen, cycle, POD, "oslo", 0), WaitingPod)
    assert cycle.snapshot.nodes["oslo"].requested == {"pods": 1}
    unreserve(chosen, cycle, POD, "oslo")
    assert log[-2:] == ["B unreserve", "A unreserve"]
    assert cycle.snapshot.nodes["oslo"].requested == {"pods": 0}


def test_who_skips_the_bind_has_not_bound() -> None:
    log: list[str] = []
    chosen, cycle = two(log)
    chosen.points["bind"] = chosen.points["bind"][:2]
    failed = place(chosen, cycle, POD, "oslo", 0)
    assert failed == Failed("oslo", "bind", Status("Error", ("no plugin binds this pod",)))
    assert log[-2:] == ["B unreserve", "A unreserve"]
