"""`shadow`: what the cluster's own scheduler did, or those of a hub (Karmada's, OCM's), held
against what we decide on the same facts.

The comparison is `wharfinger.history.shadow` or `fleet_shadow`; here it is shown as a table, JSON
or a page. Ends with 1 where they placed what we refuse: then one of the two filters is wrong, or
differs by a deviation that is listed in docs/deviations.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from wharfinger.history.fleet_shadow import fleet_shadow
from wharfinger.history.points import HistoryPoint, point_of
from wharfinger.history.shadow import GENESIS, ShadowReport, release_of, shadow
from wharfinger.history.shadow_page import ShadowWords, shadow_html, shadow_verdict, share, words_of
from wharfinger.history.states import PRESENT
from wharfinger.runtime.kube.joined import joined_clusters
from wharfinger.runtime.ledger import wall_clock
from wharfinger.runtime.settings import load_settings
from wharfinger.stages.shadow import ShadowDecision
from wharfinger_cli.bulk import bar
from wharfinger_cli.connection import opened_ledger, reached, run
from wharfinger_cli.failures import DIFFERENCE, CommandError
from wharfinger_cli.output import (
    BAD,
    DARK,
    GOOD,
    WARN,
    Plain,
    as_clock,
    as_time,
    count,
    messages,
    new_table,
    show,
)
from wharfinger_cli.request import Request

SHOWN_MAX = 20
STYLES = {"agreed": GOOD, "equal": GOOD, "better": GOOD, "worse": WARN, "refused": BAD}


@dataclass(frozen=True, slots=True)
class ShadowOptions:
    """What follows `shadow CLUSTER`. `schedulers`: empty for those that the cluster was joined
    with. `release`: of Kubernetes, such as 1.36; empty for that of the joined cluster. `hub`: it is
    a hub, even if it is not joined here."""

    since: str = ""
    to: str = ""
    schedulers: tuple[str, ...] = ()
    release: str = ""
    report: Path | None = None
    hub: bool = False


def show_shadow(request: Request, cluster: str, options: ShadowOptions) -> None:
    joined = joined_clusters(load_settings(request.flags).clusters_dir()).clusters.get(cluster)
    schedulers = options.schedulers or (joined.shadow_of if joined else ("default-scheduler",))
    version = options.release or (joined.version if joined else "")
    release = release_of(version)
    if options.release and release is None:
        raise CommandError(f"--release: expected one such as 1.36, got {options.release!r}")
    hub = options.hub or bool(joined and joined.hub)
    if hub and options.release:
        raise CommandError(f"--release: expected none for {cluster}, which is a hub")
    result = run(_compared(request, cluster, options, schedulers, release, hub=hub))
    if options.report is not None:
        _write(options.report, shadow_html(result, _command(cluster, options)))
    names = [f"{one.namespace}/{one.name}" for one in result.of("refused")]
    show(request.format, shadow_plain(result), names, lambda: shadow_tables(result))
    if options.report is not None:
        messages().print(f"the comparison as a page: {options.report}")
    if result.counts["refused"]:
        raise SystemExit(DIFFERENCE)


async def _compared(
    request: Request,
    cluster: str,
    options: ShadowOptions,
    schedulers: Sequence[str],
    release: tuple[int, int] | None,
    *,
    hub: bool,
) -> ShadowReport:
    now = wall_clock()
    from_ = _point(options.since, now, GENESIS)
    to = _point(options.to, now, PRESENT)
    async with opened_ledger(reached(request)) as ledger:
        with bar("comparing", 100) as step:
            if hub:
                return await fleet_shadow(
                    ledger, cluster, from_, to, schedulers=schedulers, progress=step
                )
            return await shadow(
                ledger, cluster, from_, to, schedulers=schedulers, release=release, progress=step
            )


def _point(text: str, now: int, otherwise: HistoryPoint) -> HistoryPoint:
    return point_of(text, now) if text else otherwise


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}") from error


def _command(cluster: str, options: ShadowOptions) -> str:
    """As it can be typed again."""
    words = ["wharfinger", "shadow", cluster]
    flags = [("--since", options.since), ("--to", options.to), ("--release", options.release)]
    flags += [("--scheduler", name) for name in options.schedulers]
    for flag, value in flags:
        words += [flag, value] if value else []
    return " ".join([*words, "--hub"] if options.hub else words)


# --- for programs


def shadow_plain(result: ShadowReport) -> Plain:
    waits, words = result.waits_us(), words_of(result)
    return {
        "cluster": result.cluster,
        "schedulers": list(result.schedulers),
        "profile": result.profile,
        "from": as_time(result.begin),
        "to": as_time(result.end),
        f"{words.places}s": result.nodes,
        "placed": result.placed,
        "counts": dict(result.counts),
        "plugins": [
            {"plugin": plugin, words.many: pods, "our_lead": ours, "their_lead": theirs}
            for plugin, pods, ours, theirs in result.plugins()
        ],
        "latency_s": {
            "theirs_median": _median(waits) / 1e6 if waits else None,
            f"theirs_{words.many}": len(waits),
            "ours_mean": round(result.run_s / result.runs, 6) if result.runs else None,
        },
        "decisions": [_decision_plain(one, words.one) for one in result.decisions],
    }


def _decision_plain(one: ShadowDecision, what: str) -> Plain:
    return {
        what: f"{one.namespace}/{one.name}",
        "uid": one.uid,
        "scheduler": one.scheduler,
        "verdict": one.verdict,
        "theirs": one.theirs,
        "ours": one.ours,
        "their_score": one.their_score,
        "our_score": one.our_score,
        "plugins": {p.plugin: {"ours": p.ours, "theirs": p.theirs} for p in one.plugins},
        "refusals": {r.plugin: list(r.reasons) for r in one.refusals},
        "nodes" if what == "pod" else "clusters": one.nodes,
        "feasible": one.feasible,
        "at": as_time(one.at_us),
        "waited_s": round(one.waited_us / 1e6, 3),
    }


def _median(values: Sequence[int]) -> float:
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


# --- for people


def shadow_tables(result: ShadowReport) -> Iterator[RenderableType]:
    words = words_of(result)
    yield Text(f"{', '.join(result.schedulers)} in {result.cluster}, and we beside it", "bold")
    yield Text(
        f"{as_clock(result.begin)} to {as_clock(result.end)}, {count(result.nodes, words.places)},"
        f" {count(result.placed, words.one)}{' compared' if result.hub else ' placed'}",
        DARK,
    )
    yield ""
    table = new_table("", words.many, "", right=(words.many,))
    for verdict, pods in result.counts.items():
        of = "" if verdict == "unplaced" else share(pods, result.placed)
        style = STYLES.get(verdict, WARN) if pods else DARK
        table.add_row(Text(words.titles[verdict], style), f"{pods:,}", of)
    yield table
    yield ""
    yield shadow_verdict(result)
    waits = result.waits_us()
    if waits:
        last = waits[len(waits) * 99 // 100] / 1e6
        begins = "a request to its clusters" if result.hub else "a pod's creation to its node"
        yield (
            f"from {begins}: {_median(waits) / 1e6:.1f} s at the median,"
            f" {last:.1f} s at p99, as seen here"
        )
    if result.runs:
        yield f"one decision of ours: {1e3 * result.run_s / result.runs:.1f} ms, measured now"
    if plugins := result.plugins():
        yield ""
        yield _plugins_table(plugins, words)
    for verdict in ("refused", "unplaced", "worse", "better"):
        if found := [one for one in result.decisions if one.verdict == verdict]:
            yield ""
            yield Text(f"{words.titles[verdict]}: {len(found):,}", "bold")
            yield _decisions_table(found[:SHOWN_MAX], words)
            if len(found) > SHOWN_MAX:
                yield Text(f"and {len(found) - SHOWN_MAX:,} more; -o json has all of them", DARK)


def _plugins_table(plugins: Sequence[tuple[str, int, int, int]], words: ShadowWords) -> Table:
    table = new_table(
        "plugin that made a difference",
        words.many,
        "for ours",
        "for theirs",
        right=(words.many, "for ours", "for theirs"),
    )
    for plugin, pods, ours, theirs in plugins:
        table.add_row(plugin, f"{pods:,}", f"{ours:,}", f"{theirs:,}")
    return table


def _decisions_table(found: Sequence[ShadowDecision], words: ShadowWords) -> Table:
    table = new_table(words.one, "theirs", "ours", "scores", "why", right=("scores",))
    for one in found:
        table.add_row(
            f"{one.namespace}/{one.name}",
            one.theirs,
            one.ours,
            f"{one.their_score} : {one.our_score}",
            why(one),
        )
    return table


def why(one: ShadowDecision) -> str:
    """The reasons of a refusal, or what each plugin has between the two nodes."""
    if one.refusals:
        return "; ".join(f"{r.plugin}: {', '.join(r.reasons)}" for r in one.refusals)
    return ", ".join(f"{p.plugin} {p.ours - p.theirs:+d}" for p in one.plugins)
