"""A policy and a workload that are applied at the same moment, each compiled of what its caller
has read before: the result is that of one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from tests.api import ApiUnderTest, Client, serving
from tests.backends import fresh_database, in_a_loop
from tests.commands import in_process
from tests.hunting import examples

from wharfinger.answers import changes
from wharfinger.answers.changes import AppliedChanges, Compile, change, compiled, compiled_away
from wharfinger.answers.facts import LatestFacts, known_facts
from wharfinger.answers.submit import news_of
from wharfinger.domain.binding import Binding
from wharfinger.events.intake import moved_bindings
from wharfinger.manifests.parse import Manifest, loaded_texts
from wharfinger.runtime.ledger import AcceptResult, AsRead, AsSeen, Ledger, Submission
from wharfinger.runtime.ledger.bodies import unpack
from wharfinger.runtime.ledger.errors import ChangedSinceError, Transient
from wharfinger.runtime.ledger.writer import MovedHeads, RoundRows

pytestmark = pytest.mark.integration

Work = Callable[[], Awaitable[object]]


def policy(name: str, kind: str = "Divided", namespace: str = "shop", more: str = "") -> str:
    """`more`: members of its spec. Without a namespace it is for the whole plane."""
    whole = "" if namespace else "Cluster"
    where = f", namespace: {namespace}" if namespace else ""
    return f"""\
apiVersion: policy.karmada.io/v1alpha1
kind: {whole}PropagationPolicy
metadata: {{name: {name}{where}}}
spec:
  resourceSelectors: [{{apiVersion: apps/v1, kind: Deployment}}]
  placement: {{replicaScheduling: {{replicaSchedulingType: {kind}}}}}
  {more}
"""


def workload(name: str, replicas: int = 2, namespace: str = "shop", anywhere: bool = False) -> str:
    note = ", annotations: {wharfinger.io/placement: any}" if anywhere else ""
    return f"""\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}, namespace: {namespace}{note}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec: {{containers: [{{name: main, image: main}}]}}
"""


def several(*texts: str) -> str:
    return "---\n".join(texts)


def read(text: str) -> tuple[Manifest, ...]:
    found = loaded_texts([("all.yaml", text)])
    assert not found.errors
    return found.manifests


class Plane:
    """Two ways to apply: requests to the API, and the command over the database."""

    def __init__(self, url: str, api: ApiUnderTest, way: str, client: Client, folder: Path) -> None:
        self.url, self.api, self.way, self.client, self.folder = url, api, way, client, folder
        self.ledger = Ledger(api.past.present)
        self._files = 0

    async def hand_in(self, verb: str, text: str) -> None:
        if self.way == "api":
            body = {"manifests": [{"name": "all.yaml", "text": text}]}
            answer = await self.client.send("POST", f"/v1/{verb}", body)
            assert answer.status_code == 200, answer.text
            return
        self._files += 1
        file = self.folder / f"{self._files}.yaml"
        file.write_text(text)
        environment = {"WHARFINGER_DATABASE": self.url}
        done = await asyncio.to_thread(in_process, [verb, "-f", str(file)], environment)
        assert done.returncode == 0, done.stderr

    async def apply(self, text: str) -> None:
        await self.hand_in("apply", text)

    async def delete(self, text: str) -> None:
        await self.hand_in("delete", text)

    async def bindings(self) -> dict[str, Binding]:
        return {b.resource.name: b for b in (await known_facts(self.ledger)).bindings}


@pytest.fixture
def url(database_server: str, migrated_database: str) -> Iterator[str]:
    with fresh_database(database_server, template=migrated_database) as found:
        in_a_loop(lambda: _begun(found))
        yield found


async def _begun(url: str) -> None:
    await (await Ledger.open(url, "tests")).close()


@pytest_asyncio.fixture
async def api(url: str) -> AsyncIterator[ApiUnderTest]:
    async with serving(url) as found:
        yield found


@pytest_asyncio.fixture(params=["api", "command"])
async def plane(
    request: pytest.FixtureRequest, url: str, api: ApiUnderTest, tmp_path: Path
) -> Plane:
    client = await api.as_("operator")
    return Plane(url, api, request.param, client, tmp_path)


def after_reading(patch: pytest.MonkeyPatch, work: Work) -> list[object]:
    """The next caller that has read what is known is held up until `work` is done. The list has an
    entry once that took place."""
    done: list[object] = []

    async def held_up(ledger: Ledger) -> LatestFacts:
        patch.setattr(changes, "known_facts", known_facts)
        found = await known_facts(ledger)
        done.append(await work())
        return found

    patch.setattr(changes, "known_facts", held_up)
    return done


async def test_a_policy_is_first(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    """The workload's caller has read no policy, and skips its workload."""
    done = after_reading(monkeypatch, lambda: plane.apply(policy("all")))
    await plane.apply(workload("web"))
    assert done
    assert (await plane.bindings())["web"].policy == "PropagationPolicy/shop/all"


async def test_a_workload_is_first(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    done = after_reading(monkeypatch, lambda: plane.apply(workload("web", anywhere=True)))
    await plane.apply(policy("all"))
    assert done
    assert (await plane.bindings())["web"].policy == "PropagationPolicy/shop/all"


@pytest.mark.parametrize("first", ["policy", "workload"])
async def test_a_policy_and_its_workload_are_changed(
    plane: Plane, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    await plane.apply(several(policy("all"), workload("web", 2)))
    texts = {"policy": policy("all", "Duplicated"), "workload": workload("web", 5)}
    early = texts.pop(first)
    (late,) = texts.values()
    done = after_reading(monkeypatch, lambda: plane.apply(early))
    await plane.apply(late)
    assert done
    web = (await plane.bindings())["web"]
    assert web.replicas == 5
    assert web.placement.replicas is not None
    assert web.placement.replicas.type == "Duplicated"


@pytest.mark.parametrize("first", ["policy", "workload"])
async def test_a_policy_is_deleted(
    plane: Plane, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """The workload goes to the policy that is left."""
    await plane.apply(several(policy("all"), policy("zero", "Duplicated")))

    async def delete() -> None:
        await plane.delete(policy("all"))

    async def apply() -> None:
        await plane.apply(workload("web"))

    early, late = (delete, apply) if first == "policy" else (apply, delete)
    done = after_reading(monkeypatch, early)
    await late()
    assert done
    assert (await plane.bindings())["web"].policy == "PropagationPolicy/shop/zero"


async def test_a_deleted_workload_does_not_come_back_with_its_policy(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    await plane.apply(several(policy("all"), workload("web")))
    done = after_reading(monkeypatch, lambda: plane.delete(workload("web")))
    await plane.apply(policy("all", "Duplicated"))
    assert done
    assert await plane.bindings() == {}


async def test_the_same_twice_at_once_is_one_change(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = several(policy("all"), workload("web"))
    done = after_reading(monkeypatch, lambda: plane.apply(text))
    await plane.apply(text)
    assert done
    assert await plane.ledger.accepted_seq() == 2


class _Held(Ledger):
    """`before` takes place in front of each acceptance."""

    async def before(self) -> None:
        raise NotImplementedError

    async def accept(
        self,
        submissions: Sequence[Submission],
        origin: object = None,
        seen: AsSeen | None = None,
        read: AsRead | None = None,
        writer: object = None,
    ) -> AcceptResult:
        await self.before()
        return await super().accept(submissions, None, seen, read)


class Interrupted(_Held):
    """Something takes place in front of its n-th acceptance (from 0)."""

    def __init__(self, ledger: Ledger, between: dict[int, Work]) -> None:
        super().__init__(ledger.database)
        self.between = between
        self.chunks = 0

    async def before(self) -> None:
        if (work := self.between.pop(self.chunks, None)) is not None:
            await work()
        self.chunks += 1


async def applied(
    ledger: Ledger, text: str, made_by: Compile = compiled, since: int | None = None
) -> AppliedChanges:
    return await change(ledger, read(text), made_by, since=since)


def outcomes(found: AppliedChanges) -> dict[str, str]:
    return {one.subject.rpartition("/")[2]: one.result for one in found.objects}


@pytest.fixture
def ledger(api: ApiUnderTest) -> Ledger:
    return Ledger(api.past.present)


async def test_between_two_chunks_of_one_apply(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The facts of the first chunk are those of the same caller: they are no reason to compile
    again, and are not accepted twice."""
    monkeypatch.setattr(changes, "CHUNK", 2)
    names = [f"w{n}" for n in range(5)]
    await applied(ledger, several(policy("all"), *(workload(name) for name in names)))
    before = await ledger.accepted_seq()
    quiet = Interrupted(ledger, {})
    await applied(quiet, policy("all", "Duplicated"))
    assert (quiet.chunks, await ledger.accepted_seq() - before) == (3, 6)

    before = await ledger.accepted_seq()
    between: dict[int, Work] = {
        1: lambda: applied(ledger, workload("new")),
        2: lambda: applied(ledger, workload("w4", 7)),
    }
    found = await applied(Interrupted(ledger, between), policy("all"))
    known = await known_facts(ledger)
    placements = {b.resource.name: (b.replicas, b.placement) for b in known.bindings}
    assert {p.replicas.type for _, p in placements.values() if p.replicas} == {"Divided"}
    assert placements["w4"][0] == 7
    # the others' two, ours, and `w4` is right already: its caller has read the policy
    assert await ledger.accepted_seq() - before == 2 + 5
    assert (found.accepted, found.unchanged) == (5, 0)
    assert outcomes(found) == {
        "all": "changed",
        **{f"{name}-deployment": "changed" for name in names[:4]},
    }


async def test_what_others_have_changed_after_the_first_chunk_is_left_to_them(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two long changes of one policy end: none of them states again what the other has changed."""
    monkeypatch.setattr(changes, "CHUNK", 2)
    names = [f"w{n}" for n in range(5)]
    await applied(ledger, several(policy("all"), *(workload(name) for name in names)))
    ours = Interrupted(ledger, {1: lambda: applied(ledger, policy("all", more="priority: 3"))})
    found = await applied(ours, policy("all", "Duplicated"))
    known = await known_facts(ledger)
    assert [p.propagation.priority for p in known.policies if p.propagation] == [3]
    assert moved_bindings(known.bindings, known.policies) == []
    assert {b.placement.replicas.type for b in known.bindings if b.placement.replicas} == {
        "Divided"
    }
    assert outcomes(found)["all"] == "changed"
    assert found.accepted == 2

    removing = Interrupted(ledger, {1: lambda: applied(ledger, policy("all", "Duplicated"))})
    await applied(ledger, policy("zero"))
    await change(removing, (), changes.compiled_policy_removal("PropagationPolicy", "shop", "all"))
    known = await known_facts(ledger)
    assert [p.name for p in known.policies] == ["all", "zero"]
    assert moved_bindings(known.bindings, known.policies) == []


async def test_a_caller_with_one_namespace_does_no_work_of_others(api: ApiUnderTest) -> None:
    """A policy for the whole plane is accepted, the bindings of other namespaces not yet."""
    ledger = Ledger(api.past.present)
    shop = await api.as_("operator", namespaces=["shop"], name="shop")
    await applied(ledger, several(policy("whole", "Divided", ""), workload("b", 1, "bank")))

    async def apply(text: str) -> None:
        body = {"manifests": [{"name": "all.yaml", "text": text}]}
        answer = await shop.send("POST", "/v1/apply", body)
        assert answer.status_code == 200, answer.text

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(changes, "CHUNK", 1)
        between: dict[int, Work] = {1: lambda: apply(several(policy("mine"), workload("web")))}
        await applied(Interrupted(ledger, between), policy("whole", "Duplicated", ""))
    with pytest.MonkeyPatch.context() as patch:
        again = policy("whole", "Divided", "")
        done = after_reading(patch, lambda: applied(ledger, again))
        await apply(workload("other"))
    assert done
    found = {b.resource.name: b.policy for b in (await known_facts(ledger)).bindings}
    assert found == {
        "b": "ClusterPropagationPolicy//whole",
        "web": "PropagationPolicy/shop/mine",
        "other": "PropagationPolicy/shop/mine",
    }


async def test_with_if_match_what_was_seen_is_refused_as_before(ledger: Ledger) -> None:
    await applied(ledger, several(policy("all"), workload("web")))
    since = await ledger.accepted_seq()
    await applied(ledger, workload("web", 3))
    with pytest.raises(ChangedSinceError):
        await applied(ledger, workload("web", 4), since=since)


async def test_where_nothing_was_accepted_in_between_nothing_more_is_asked(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the intake's decisions one query, and only where there are some to read."""
    await applied(ledger, policy("all"))
    asked: list[int] = []

    def counted(encoding: int, body: bytes) -> bytes:
        asked.append(1)
        return unpack(encoding, body)

    monkeypatch.setattr("wharfinger.runtime.ledger.intake.unpack", counted)
    await applied(ledger, workload("web"))
    assert asked == []
    done = after_reading(monkeypatch, lambda: applied(ledger, workload("other")))
    await applied(ledger, workload("web", 4))
    assert done
    assert asked == [1]
    assert {b.replicas for b in (await known_facts(ledger)).bindings} == {2, 4}


async def test_a_transaction_that_is_repeated_compiles_again(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the first attempt has made is not taken for accepted."""
    await applied(ledger, policy("all"))
    failures, write = [Transient("database: cut")], RoundRows.write

    async def cut(*arguments: Any, **named: Any) -> MovedHeads | None:
        if failures:
            raise failures.pop()
        return await write(*arguments, **named)

    async def other() -> None:
        await applied(ledger, policy("all", "Duplicated"))
        monkeypatch.setattr(RoundRows, "write", cut)

    done = after_reading(monkeypatch, other)
    found = await applied(ledger, several(workload("v"), workload("w")))
    assert done
    assert not failures
    assert (found.accepted, found.unchanged) == (2, 0)
    known = await known_facts(ledger)
    assert [b.placement.replicas.type for b in known.bindings if b.placement.replicas] == [
        "Duplicated",
        "Duplicated",
    ]


# --- a law

Step = tuple[str, str]
"""A verb and manifests."""

_POLICIES = st.builds(
    policy,
    st.sampled_from(["a", "b"]),
    st.sampled_from(["Divided", "Duplicated"]),
    st.just("shop"),
    st.sampled_from(["", "preemption: Always\n  priority: 2"]),
)
_WORKLOADS = st.builds(
    workload, st.sampled_from(["v", "w"]), st.integers(1, 3), anywhere=st.booleans()
)
_STEPS: st.SearchStrategy[Step] = st.tuples(
    st.sampled_from(["apply", "apply", "apply", "delete"]), st.one_of(_POLICIES, _WORKLOADS)
)


class Gates:
    """Callers that are held where they have read and before each chunk; one at a time goes on."""

    def __init__(self) -> None:
        self.held: dict[int, asyncio.Event] = {}
        self.moved = asyncio.Event()

    async def hold(self, who: int) -> None:
        self.held[who] = gate = asyncio.Event()
        self.moved.set()
        await gate.wait()

    async def go_on(self, who: int) -> None:
        self.moved.clear()
        self.held.pop(who).set()
        await self.moved.wait()


async def until_all_held(gates: Gates, number: int) -> None:
    while len(gates.held) < number:
        gates.moved.clear()
        await gates.moved.wait()


class Gated(_Held):
    def __init__(self, ledger: Ledger, gates: Gates, who: int) -> None:
        super().__init__(ledger.database)
        self.gates, self.who = gates, who

    async def before(self) -> None:
        await self.gates.hold(self.who)


def _told(known: LatestFacts, step: Step) -> LatestFacts:
    """`known` after one step, without a ledger."""
    verb, text = step
    after = LatestFacts(dict(known.latest))
    for fact in (compiled if verb == "apply" else compiled_away)(read(text), known).facts:
        news_of(fact, after)
    return after


def _state(known: LatestFacts) -> tuple[list[str], list[Binding]]:
    return [f"{policy}" for policy in known.policies], known.bindings


async def _at_once(ledger: Ledger, steps: Sequence[Step], order: Sequence[int]) -> None:
    gates = Gates()

    async def one(who: int, step: Step) -> None:
        verb, text = step
        made_by = compiled if verb == "apply" else compiled_away
        await gates.hold(who)
        try:
            await change(Gated(ledger, gates, who), read(text), made_by)
        finally:
            gates.moved.set()

    tasks = [asyncio.create_task(one(who, step)) for who, step in enumerate(steps)]
    await until_all_held(gates, len(steps))
    for turn in range(10_000):
        if not gates.held:
            break
        waiting = sorted(gates.held)
        await gates.go_on(waiting[order[turn % len(order)] % len(waiting)])
    await asyncio.gather(*tasks)


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    standing=st.lists(_STEPS, max_size=3),
    steps=st.lists(_STEPS, min_size=2, max_size=4),
    order=st.lists(st.integers(0, 3), min_size=1, max_size=12),
)
def test_what_is_applied_at_once_is_as_if_one_came_after_the_other(
    url: str, standing: list[Step], steps: list[Step], order: list[int]
) -> None:
    async def tried() -> None:
        ledger = await Ledger.open(url, "tests")
        try:
            known = await known_facts(ledger)
            for policy_ in known.policies:
                await change(
                    ledger,
                    (),
                    changes.compiled_policy_removal(policy_.kind, policy_.namespace, policy_.name),
                )
            for name in ("v", "w"):
                await applied(ledger, workload(name), compiled_away)
            for verb, text in standing:
                await applied(ledger, text, compiled if verb == "apply" else compiled_away)
            before = await known_facts(ledger)
            await _at_once(ledger, steps, order)
            after = _state(await known_facts(ledger))
            possible = []
            for some in permutations(steps):
                end = before
                for step in some:
                    end = _told(end, step)
                possible.append(_state(end))
            assert after in possible
        finally:
            await ledger.close()

    in_a_loop(tried)
