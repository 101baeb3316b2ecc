"""`effects`: what is open in joined clusters, as requests, from the ledger alone.

The same function of decisions and facts that the actuator calls, so it is its dry run: it works
while no actuator runs, and for verbs that are not enabled yet. Nothing is sent.
"""

from __future__ import annotations

import msgspec
from rich.table import Table

from wharfinger.domain.actuation import VERBS, Verb
from wharfinger.runtime.actuation import known_work
from wharfinger.runtime.kube.joined import JoinedCluster, joined_clusters
from wharfinger.runtime.ledger import wall_clock
from wharfinger.runtime.settings import load_settings
from wharfinger.stages.actuator import open_effects
from wharfinger.stages.actuator.effects import Effect
from wharfinger.stages.actuator.requests import shown_request
from wharfinger_cli.connection import opened_ledger, reached, run
from wharfinger_cli.failures import CommandError, NotFoundError
from wharfinger_cli.output import Plain, new_table, show_list
from wharfinger_cli.request import Request


def show_effects(request: Request, cluster: str | None, verbs: tuple[str, ...]) -> None:
    """`verbs`: as if these were in force; none: those that are."""
    chosen = _chosen(verbs)
    joined = joined_clusters(load_settings(request.flags).clusters_dir()).clusters
    if cluster is not None and cluster not in joined:
        raise NotFoundError(
            f"{cluster}: no such cluster is joined; joined: {', '.join(joined) or 'none'}"
        )
    asked = [one for name, one in joined.items() if cluster in (None, name) and not one.hub]
    found = run(_open(request, asked, chosen))

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
        return out

    names = [f"{effect.cluster}/{effect.object.name}" for effect in found]
    show_list(request.format, [_plain(effect) for effect in found], names, table, "nothing is open")


def _chosen(named: tuple[str, ...]) -> tuple[Verb, ...]:
    for name in named:
        if name not in VERBS:
            raise CommandError(f"--verb: expected {' or '.join(VERBS)}, got {name!r}")
    return tuple(verb for verb in VERBS if verb in named)


async def _open(
    request: Request, joined: list[JoinedCluster], verbs: tuple[Verb, ...]
) -> list[Effect]:
    at = wall_clock()
    async with opened_ledger(reached(request)) as ledger:
        state = await known_work(ledger, [one.name for one in joined], at)
    return [
        effect
        for one in joined
        for effect in open_effects(state[one.name], verbs or one.verbs_in_force, at)
    ]


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
