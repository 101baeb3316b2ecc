"""`effects`: what is open in joined clusters, as requests, from the ledger. Of workloads that are
copied the servers of hub and member are read as well.

The same function of decisions and facts that the actuator calls, so it is its dry run: it works
while no actuator runs, and for verbs that are not enabled yet. Nothing is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec
from rich.table import Table

from wharfinger.domain.actuation import VERBS, Verb
from wharfinger.domain.ids import ResourceName
from wharfinger.domain.text import some
from wharfinger.domain.time import Micros
from wharfinger.events.effects import EffectAnswer
from wharfinger.runtime.actuation import barred_nodes, known_work
from wharfinger.runtime.kube.joined import JoinedCluster, joined_clusters
from wharfinger.runtime.ledger import Ledger, wall_clock
from wharfinger.runtime.settings import load_settings
from wharfinger.stages.actuator import open_effects
from wharfinger.stages.actuator.effects import Effect
from wharfinger.stages.actuator.node_room import lacks, short_nodes
from wharfinger.stages.actuator.plan import decided_at
from wharfinger.stages.actuator.requests import shown_request
from wharfinger.stages.cluster.barred_nodes import BarInForce
from wharfinger_cli.connection import opened_ledger, reached, run
from wharfinger_cli.failures import CommandError, NotFoundError
from wharfinger_cli.output import Plain, as_seconds, new_table, show_list
from wharfinger_cli.request import Request

if TYPE_CHECKING:
    from wharfinger_cli.open_copies import OpenCopy


@dataclass(frozen=True, slots=True)
class OpenEffect:
    """`since`: when it was decided; 0: that is not known. `answer`: what the API server said last;
    None: that was not asked for, or nothing. `lacks`: the resources for lack of which a binding is
    kept back."""

    effect: Effect
    since: Micros
    answer: EffectAnswer | None = None
    lacks: tuple[ResourceName, ...] = ()

    @property
    def why(self) -> str:
        if self.lacks:
            return f"{self.effect.target} has too little {some(self.lacks)} left: it is not sent"
        return _words(self.answer)

    @property
    def plain(self) -> Plain:
        return {**_plain(self.effect), "since_us": self.since, "why": self.why}


@dataclass(frozen=True, slots=True)
class OpenWork:
    """`copies`: the oldest first. `barred`: bars that are in force at `at`, by cluster."""

    at: Micros
    open: list[OpenEffect]
    copies: list[OpenCopy]
    barred: list[BarInForce]


def show_open(request: Request, cluster: str | None, verbs: tuple[str, ...]) -> None:
    """What is open, since when and why. The broker is asked what API servers answered."""
    chosen, asked = _chosen(verbs), _asked(request, cluster)
    found = run(_with_answers(request, asked, chosen))

    names = [f"{one.effect.cluster}/{one.effect.object.name}" for one in found.open]
    names += [f"{copy.cluster}/{copy.object}" for copy in found.copies]
    rows = [one.plain for one in found.open] + [copy.plain for copy in found.copies]
    rows += [_barred_plain(bar) for bar in found.barred]
    show_list(request.format, rows, names, lambda: open_table(found), "nothing is open")


def open_table(found: OpenWork) -> Table:
    out = new_table("cluster", "effect", "object", "decision", "open for", "why")
    for one in found.open:
        effect, waited = one.effect, _waited(found.at, one.since)
        cause = str(effect.cause or "")
        out.add_row(effect.cluster, effect.action, str(effect.object), cause, waited, one.why)
    for copy in found.copies:
        waited = _waited(found.at, copy.since)
        out.add_row(copy.cluster, copy.action, copy.object, "", waited, copy.why)
    for bar in found.barred:
        left = as_seconds((bar.until_us - found.at) / 1_000_000)
        out.add_row(
            bar.cluster, "barred", f"Node {bar.node}", bar.binding, f"{left} to go", bar.why
        )
    return out


def _waited(at: Micros, since: Micros) -> str:
    """Empty where it is not known since when."""
    return as_seconds(max(0, at - since) / 1_000_000) if since else ""


def _barred_plain(bar: BarInForce) -> Plain:
    return {
        "cluster": bar.cluster,
        "action": "barred",
        "kind": "Node",
        "name": bar.node,
        "binding": bar.binding,
        "failures": bar.failures,
        "until_us": bar.until_us,
        "why": bar.why,
    }


async def _with_answers(
    request: Request, joined: list[JoinedCluster], verbs: tuple[Verb, ...]
) -> OpenWork:
    from wharfinger_cli.effect_answers import key_of, latest_answers

    at, names = wall_clock(), [one.name for one in joined]
    answers = await latest_answers(load_settings(request.flags).backend())
    async with opened_ledger(reached(request)) as ledger:
        state = await known_work(ledger, names, at)
        barred = await barred_nodes(ledger, names, at)
        copies = await _copies(request, ledger, joined, verbs)
    found: list[OpenEffect] = []
    for one in joined:
        work = state[one.name]
        effects = open_effects(work, verbs or one.verbs_in_force, at)
        short = short_nodes(work, effects)
        found += [
            OpenEffect(
                effect,
                decided_at(work, effect),
                answers.get(key_of(one.name, effect)),
                lacks(work, effect, short),
            )
            for effect in effects
        ]
    said = [
        copy
        if copy.write is None
        else replace(copy, why=_words(answers.get(key_of(copy.cluster, copy.write))))
        for copy in copies
    ]
    return OpenWork(at, found, sorted(said, key=lambda copy: copy.age_order), barred)


def show_effects(request: Request, cluster: str | None, verbs: tuple[str, ...]) -> None:
    """`verbs`: as if these were in force; none: those that are."""
    chosen, asked = _chosen(verbs), _asked(request, cluster)
    found, copies = run(_open(request, asked, chosen))

    def table() -> Table:
        out = new_table("cluster", "verb", "effect", "object", "decision", "request")
        for effect in found:
            sent = shown_request(effect)
            out.add_row(
                effect.cluster,
                effect.verb,
                effect.action,
                str(effect.object),
                str(effect.cause or ""),
                f"{sent.method} {sent.path} {msgspec.json.encode(sent.body).decode()}",
            )
        for copy in copies:
            write = copy.write
            body = copy.why if write is None else msgspec.json.encode(write.shown).decode()
            asked = f"{copy.request} {body}".strip()
            out.add_row(copy.cluster, "copy", copy.action, copy.object, "", asked)
        return out

    names = [f"{effect.cluster}/{effect.object.name}" for effect in found]
    names += [f"{copy.cluster}/{copy.object}" for copy in copies]
    rows = [_plain(effect) for effect in found] + [copy.plain for copy in copies]
    show_list(request.format, rows, names, table, "nothing is open")


async def _copies(
    request: Request, ledger: Ledger, joined: list[JoinedCluster], verbs: tuple[Verb, ...]
) -> list[OpenCopy]:
    """The servers are asked only where something is copied."""
    if not any("copy" in (verbs or one.verbs_in_force) for one in joined):
        return []
    from wharfinger_cli.open_copies import open_copies

    return await open_copies(ledger, _all(request), joined, verbs)


def _all(request: Request) -> Mapping[str, JoinedCluster]:
    return joined_clusters(load_settings(request.flags).clusters_dir()).clusters


def _asked(request: Request, cluster: str | None) -> list[JoinedCluster]:
    joined = _all(request)
    if cluster is not None and cluster not in joined:
        raise NotFoundError(
            f"{cluster}: no such cluster is joined; joined: {', '.join(joined) or 'none'}"
        )
    return [one for name, one in joined.items() if cluster in (None, name) and not one.hub]


def _chosen(named: tuple[str, ...]) -> tuple[Verb, ...]:
    for name in named:
        if name not in VERBS:
            raise CommandError(f"--verb: expected {' or '.join(VERBS)}, got {name!r}")
    return tuple(verb for verb in VERBS if verb in named)


async def _open(
    request: Request, joined: list[JoinedCluster], verbs: tuple[Verb, ...]
) -> tuple[list[Effect], list[OpenCopy]]:
    at = wall_clock()
    async with opened_ledger(reached(request)) as ledger:
        state = await known_work(ledger, [one.name for one in joined], at)
        copies = await _copies(request, ledger, joined, verbs)
    effects = [
        effect
        for one in joined
        for effect in open_effects(state[one.name], verbs or one.verbs_in_force, at)
    ]
    return effects, copies


def _plain(effect: Effect) -> Plain:
    named, sent = effect.object, shown_request(effect)
    return {
        "cluster": effect.cluster,
        "verb": effect.verb,
        "action": effect.action,
        "kind": named.kind,
        "namespace": named.namespace,
        "name": named.name,
        "uid": named.uid,
        "stream": effect.cause.stream if effect.cause else "",
        "seq": effect.cause.seq if effect.cause else 0,
        "decision": effect.cause.decision if effect.cause else "",
        "method": sent.method,
        "path": sent.path,
        "body": sent.body,
    }


def _words(answer: EffectAnswer | None) -> str:
    """`blocked: 429 TooManyRequests: Cannot evict pod ...`."""
    if answer is None:
        return "no answer is known: it was not sent yet, or no fact has come since"
    code = str(answer.code) if answer.code else ""
    words = " ".join([word for word in (code, answer.reason) if word])
    return ": ".join([part for part in (answer.outcome, words, answer.message) if part])
