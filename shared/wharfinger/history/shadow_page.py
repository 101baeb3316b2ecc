"""A shadow report as a page: one file, nothing linked, light or dark as the reader's screen is.

What a platform team reads after a month: how often both chose the same, what each difference is
worth and which plugin made it, and what one of the two could place and the other not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from wharfinger.history.html_pages import rendered, utc
from wharfinger.history.shadow import ShadowReport
from wharfinger.stages.shadow import ShadowDecision, Verdict

ROWS_MAX = 200

TITLES: Mapping[Verdict, str] = {
    "agreed": "the same node",
    "equal": "another node, equal in score",
    "better": "ours scores higher",
    "worse": "theirs scores higher",
    "refused": "they placed, we refuse the node",
    "unplaced": "they have no node, we have",
}
FLEET_TITLES: Mapping[Verdict, str] = {
    **TITLES,
    "agreed": "the same clusters",
    "equal": "another choice, equal in score",
    "refused": "they placed, we refuse",
    "unplaced": "they have no clusters, we have",
}
"""Of the choices of clusters in a hub."""
SECTIONS: Mapping[Verdict, str] = {
    "refused": "Every filter that refuses the node is named. This list should be empty, but for "
    "deviations that are documented: otherwise one of the two filters is wrong.",
    "unplaced": "Pods that still waited at the end, and for which a node was feasible then.",
    "worse": "A recorded decision of ours scored lower on the facts at the time of binding.",
    "better": "The other scheduler did not take a node of the highest score, as when it looks at a "
    "part of the nodes.",
}


FLEET_SECTIONS: Mapping[Verdict, str] = {
    "refused": "Clusters that a filter refuses are named, each with its reason; else it is said "
    "why no choice of ours has all replicas. This list should be empty, but for deviations that "
    "are documented.",
    "unplaced": "Bindings and placements that still waited at the end, and for which we had "
    "clusters then.",
    "worse": "Our choice has a lower score on the facts at the time of theirs.",
    "better": "The hub's scheduler made a choice with a lower score than ours.",
}


@dataclass(frozen=True, slots=True)
class ShadowWords:
    """What is compared, and how each verdict is called. `places`: where it goes."""

    one: str
    many: str
    titles: Mapping[Verdict, str]
    sections: Mapping[Verdict, str]
    places: str


POD_WORDS = ShadowWords("pod", "pods", TITLES, SECTIONS, "node")
FLEET_WORDS = ShadowWords("choice", "choices", FLEET_TITLES, FLEET_SECTIONS, "cluster")


def words_of(result: ShadowReport) -> ShadowWords:
    return FLEET_WORDS if result.hub else POD_WORDS


def shadow_html(result: ShadowReport, command: str) -> str:
    """The whole page as HTML. `command`: as it can be typed again."""
    counts, words = result.counts, words_of(result)
    waits = result.waits_us()
    return rendered(
        "shadow.html.j2",
        result=result,
        words=words,
        command=command,
        verdict=shadow_verdict(result),
        tone="worse" if counts["refused"] else "better",
        begin=utc(result.begin),
        end=utc(result.end),
        counts=[(v, words.titles[v], n, share(n, result.placed)) for v, n in counts.items()],
        widths=_widths(result),
        plugins=result.plugins(),
        sections=[
            (words.titles[verdict], text, found[:ROWS_MAX], len(found))
            for verdict, text in words.sections.items()
            if (found := result.of(verdict))
        ],
        why=_why,
        median=f"{waits[len(waits) // 2] / 1e6:.1f} s" if waits else "",
        p99=f"{waits[len(waits) * 99 // 100] / 1e6:.1f} s" if waits else "",
    )


def shadow_verdict(result: ShadowReport) -> str:
    """What came of it, in one sentence."""
    counts, placed = result.counts, result.placed
    if result.hub:
        return _fleet_verdict(result)
    if not placed:
        return "No pod was placed in this time that could be compared."
    same = counts["agreed"] + counts["equal"]
    parts = [f"Of {placed:,} placed pods {same:,} went to a node that we score as high as ours"]
    if counts["better"]:
        parts.append(f"{counts['better']:,} to one that we score lower")
    if counts["worse"]:
        parts.append(f"{counts['worse']:,} to one that we score higher")
    refused = counts["refused"]
    parts.append(f"{refused:,} to one that we refuse" if refused else "none to one that we refuse")
    return "; ".join(parts) + "."


def _fleet_verdict(result: ShadowReport) -> str:
    counts, placed = result.counts, result.placed
    if not placed:
        return "The hub's schedulers chose no clusters in this time that could be compared."
    same = counts["agreed"] + counts["equal"]
    parts = [f"Of {placed:,} choices of clusters {same:,} have the score of ours"]
    if counts["better"]:
        parts.append(f"{counts['better']:,} a lower one")
    if counts["worse"]:
        parts.append(f"{counts['worse']:,} a higher one")
    refused = counts["refused"]
    parts.append(f"{refused:,} we would have refused" if refused else "none would be refused by us")
    return "; ".join(parts) + "."


def share(part: int, whole: int) -> str:
    """`12.5 %`; empty where there is no whole."""
    if not whole:
        return ""
    return f"{(Decimal(100 * part) / whole).quantize(Decimal('0.1'))} %"


def _widths(result: ShadowReport) -> list[tuple[Verdict, str, float]]:
    """(verdict, title, per cent of the bar), of those that occur among placed pods."""
    return [
        (verdict, words_of(result).titles[verdict], round(100 * number / result.placed, 3))
        for verdict, number in result.counts.items()
        if number and verdict != "unplaced"
    ]


def _why(one: ShadowDecision) -> str:
    if one.refusals:
        return "; ".join(f"{r.plugin}: {', '.join(r.reasons)}" for r in one.refusals)
    return ", ".join(f"{p.plugin} {p.ours - p.theirs:+d}" for p in one.plugins)
