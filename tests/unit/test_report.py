"""What a what-if says: thresholds, the verdict, where two decisions part, prices, what may be
changed, and the page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from uuid import UUID

import pytest

from wharfinger.domain.binding import Binding, TargetCluster
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.placement import Placement, ReplicaScheduling
from wharfinger.domain.policy import Policy, Propagation, ResourceSelector
from wharfinger.domain.selectors import LabelSelector
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.cluster_state import PodsObserved, into_buckets
from wharfinger.events.decisions import (
    ComparedKind,
    Explanation,
    NodeShare,
    ReplicasAdopted,
    ReplicasPlaced,
    ReplicasRefused,
    ReplicasReleased,
    ScheduleDecided,
    ScheduleRefused,
    ScoredCandidate,
)
from wharfinger.history.changes import SETTINGS, ChangeError, Changes, changes_of
from wharfinger.history.compare import (
    BindingDifference,
    Pairing,
    Parting,
    Side,
    Taken,
    ThresholdError,
    figures,
    judged,
    parting,
    threshold_of,
)
from wharfinger.history.plots import plots, png, svg
from wharfinger.history.prices import PricesError, read_prices
from wharfinger.history.report import ReportCommand, changed_text, page, verdict
from wharfinger.history.run_metrics import Final, RunMetrics, Sample, Totals, tenant_by
from wharfinger.history.whatif import WhatIf, WhatIfRun

EXAMPLES = Path(__file__).parents[2] / "examples" / "whatif"
HOUR = 3_600_000_000


def totals(**values: object) -> Totals:
    return replace(Totals(used=(500, 400, None), deviation=(10, 20, None)), **values)  # type: ignore[arg-type]


def sample(at: int, share: int, tenants: Mapping[str, int]) -> Sample:
    return Sample(
        at,
        {"east": (share, share, None), "west": (share + 100, 0, None)},
        (share, share, None),
        (50, 50, None),
        tenants,
        3,
        4,
        5,
        0,
    )


def a_result(
    recorded: Totals, unchanged: Totals, changed: Totals, name: str = "shop/web-deployment"
) -> WhatIf:
    tenants = {"shop": 100, "<lab>": 50}
    one, two, three = [
        WhatIfRun(t, tuple(sample(k * HOUR, 300 + 10 * n, tenants) for k in range(4)))
        for n, t in enumerate((recorded, unchanged, changed))
    ]
    pairing = Pairing()
    pairing.take("left", "fleet/0", 1, 1, decided(east=2))
    pairing.take("right", "fleet/0", 1, 1, decided(west=2))
    parting = pairing.close()["shop/web-deployment"]
    ends = Final({"east": 2}, {}, "", 0), Final({"west": 2}, {}, "", 0)
    return WhatIf(
        UUID(int=7),
        ("policy.yaml",),
        0,
        3 * HOUR,
        10,
        1,
        1,
        one,
        two,
        three,
        figures(recorded, unchanged, changed),
        (BindingDifference(name, False, False, *ends, parting),),
        0,
        0,
        {},
        ("a note",),
    )


def decided(**targets: int) -> ScheduleDecided:
    placed = tuple(TargetCluster(name, n) for name, n in targets.items())
    return ScheduleDecided(
        "shop/web-deployment", "u", "FirstSchedule", sum(targets.values()), placed
    )


# --- thresholds


@pytest.mark.parametrize(
    ("text", "unchanged", "changed", "failed"),
    [
        ("moves>5%", 100, 105, False),
        ("moves>5%", 100, 106, True),
        ("moves>=5%", 100, 105, True),
        ("moves>5%", 0, 0, False),
        ("moves>5%", 0, 1, True),  # of nothing every growth is more than a share
        ("moves<-10%", 100, 89, True),
        ("moves<-10%", 100, 90, False),
        ("moves>100", 100, 101, True),
        ("moves>100", 500, 100, False),
        (" moves <= 7.5 ", 0, 7, True),
    ],
)
def test_a_threshold_is_a_share_of_the_unchanged_run_or_a_number(
    text: str, unchanged: int, changed: int, failed: bool
) -> None:
    found = figures(totals(moves=unchanged), totals(moves=unchanged), totals(moves=changed))
    assert judged(threshold_of(text), found).failed is failed


@pytest.mark.parametrize(
    ("text", "changed", "failed"),
    [
        ("wait-p99>2.5", 2_500_000, False),
        ("wait-p99>2.5", 2_500_001, True),
        ("node-hours>1", HOUR + 1, True),
    ],
)
def test_numbers_are_in_the_unit_that_is_shown(text: str, changed: int, failed: bool) -> None:
    found = figures(totals(), totals(), totals(wait_p99=changed, node_us=changed))
    assert judged(threshold_of(text), found).failed is failed


def test_whether_it_is_beyond_the_error_bar_is_said() -> None:
    found = figures(totals(moves=50), totals(moves=100), totals(moves=149))
    judgement = judged(threshold_of("moves>5%"), found)
    assert (judgement.failed, judgement.beyond) == (True, False)


@pytest.mark.parametrize(
    "text", ["moves", "moves>", "moves>five", "moves=5", "5%>moves", "moves>5%%", "moves>1e9", ""]
)
def test_what_is_no_threshold_is_one_line(text: str) -> None:
    with pytest.raises(
        ThresholdError, match=r"^--fail-if .*expected NAME, one of > >= < <=, and a number"
    ):
        threshold_of(text)


def test_an_unknown_figure_is_answered_with_those_there_are() -> None:
    with pytest.raises(
        ThresholdError,
        match="--fail-if speed: expected one of decisions, moves, refusals, unplaced",
    ):
        threshold_of("speed>5%")
    with pytest.raises(ThresholdError, match="there is no figure cost here; give --prices"):
        judged(threshold_of("cost>5%"), figures(totals(), totals(), totals()))


# --- figures and the verdict


def test_a_change_within_the_drift_is_neither_better_nor_worse() -> None:
    within, beyond = (
        figures(totals(moves=90), totals(moves=100), totals(moves=n)) for n in (110, 111)
    )
    assert [f.verdict for f in (*within, *beyond) if f.name == "moves"] == ["within error", "worse"]
    (fewer,) = [
        f for f in figures(totals(), totals(moves=0), totals(decisions=5)) if f.name == "decisions"
    ]
    assert fewer.verdict == "other"  # more decisions are neither good nor bad


def test_the_verdict_is_one_sentence() -> None:
    worse = a_result(totals(), totals(), totals(refusals=7, node_us=0))
    assert verdict(worse) == (
        "Under the change 1 binding ends in other clusters; worse: refusals 0 → 7;"
        f" the other {len(worse.figures) - 1} figures within the error bar, or neither."
    )
    same = replace(a_result(totals(), totals(), totals()), differences=())
    assert verdict(same) == "The change makes no difference: every binding goes where it went."


def test_changes_are_shown_with_their_share() -> None:
    shown = {
        f.name: changed_text(f)
        for f in figures(totals(), totals(moves=200), totals(moves=100, used=(512, 400, None)))
    }
    assert shown["moves"] == "−100 (−50 %)"
    assert shown["cpu-used"] == "+1.2 points"
    assert shown["refusals"] == ""


# --- partings


def test_the_first_step_that_differs_is_named() -> None:
    two = Explanation(
        4,
        2,
        {"TaintToleration": 2},
        (ScoredCandidate("a", 80, 5, "class"),),
        (ScoredCandidate("b", 60, 9, "class"),),
    )
    left = replace_explanation(decided(a=1), two)
    fewer = Explanation(4, 1, {"TaintToleration": 3}, two.chosen)
    cases = (
        (fewer, "filter", "feasible 2, TaintToleration 2", "feasible 1, TaintToleration 3"),
        (
            Explanation(4, 2, two.refused, two.runners_up, (ScoredCandidate("a", 80, 3, "class"),)),
            "estimate",
            "a 5 (class)",
            "a 3 (class)",
        ),
        (
            Explanation(4, 2, two.refused, (ScoredCandidate("b", 90, 9, "class"),), two.chosen),
            "score",
            "b 60",
            "b 90",
        ),
        (two, "selection", "a", "b"),
    )
    for explanation, step, ours, theirs in cases:
        found = parted(left, replace_explanation(decided(b=1), explanation))
        assert (found.step, found.left_step, found.right_step) == (step, ours, theirs)
        assert (found.left, found.right) == ("scheduled: a 1", "scheduled: b 1"), (
            "the sentence that every table has of it"
        )
    alone = parted(None, left)
    assert (alone.step, alone.left_step, alone.right_step) == ("trigger", "nothing", "decided")


def test_ids_of_events_are_no_difference_between_two_runs() -> None:
    left = ReplicasPlaced("east", "web", "assignment-1", (NodeShare("n1", (0,)),))
    right = ReplicasPlaced("east", "web", "assignment-2", (NodeShare("n2", (0,)),))
    found = parted(left, right)
    assert (found.step, found.left_step, found.right_step) == ("selection", "n1", "n2")


def parted(left: ComparedKind | None, right: ComparedKind | None) -> Parting:
    return parting(
        "fleet/0", *(None if data is None else Taken(1, 1, data) for data in (left, right))
    )


def replace_explanation(data: ScheduleDecided, explanation: Explanation) -> ScheduleDecided:
    return ScheduleDecided(
        data.binding, data.uid, data.trigger, 1, data.targets, explanation=explanation
    )


def test_decisions_are_paired_in_order_whoever_comes_first() -> None:
    pairing = Pairing()
    sides: tuple[Side, ...] = ("right", "left")
    for side in sides:
        for seq, targets in enumerate(({"east": 1}, {"east": 2}), 1):
            pairing.take(side, "fleet/0", seq, seq, decided(**targets))
    assert pairing.close() == {}
    pairing.take("left", "fleet/0", 3, 3, decided(east=3))
    (parting,) = pairing.close().values()
    assert (parting.left, parting.right, parting.right_seq) == (
        "scheduled: east 3",
        "no decision",
        None,
    )


def test_where_the_fleet_parts_goes_before_where_nodes_do() -> None:
    pairing = Pairing()
    sides: tuple[tuple[Side, str, str], ...] = (("left", "n1", "east"), ("right", "n2", "west"))
    for side, node, cluster in sides:
        placed = ReplicasPlaced("east", "shop/web-deployment", "a", (NodeShare(node, (0,)),))
        pairing.take(side, "cluster/east", 1, 1, placed)
        pairing.take(side, "fleet/0", 2, 2, decided(**{cluster: 1}))
    (parting,) = pairing.close().values()
    assert parting.stream == "fleet/0"


# --- moves and waits, by hand


def a_book() -> RunMetrics:
    return RunMetrics(0, 10, 2, tenant_by(""))


def moves_of(*decisions: ScheduleDecided | ScheduleRefused | ReplicasRefused) -> int:
    book = a_book()
    for data in decisions:
        book.decided(data)
    return book.finish(10).moves


def moved(
    previous: Mapping[str, int], suspect: tuple[str, ...] = (), **targets: int
) -> ScheduleDecided:
    before = tuple(TargetCluster(name, n) for name, n in previous.items())
    return ScheduleDecided(
        "b", "u", "ReconcileSchedule", 4, decided(**targets).targets, before, suspect
    )


def test_growth_is_no_move() -> None:
    assert moves_of(moved({}, east=4)) == 0
    assert moves_of(moved({"east": 4}, east=4, west=2)) == 0
    assert moves_of(moved({"east": 4}, west=4)) == 4
    assert moves_of(moved({"east": 4}, east=1, west=3)) == 3
    assert moves_of(moved({"east": 4}, east=2)) == 0


def test_a_failover_is_one_move_however_many_decisions_it_takes() -> None:
    first, over = moved({}, east=4), moved({"east": 4}, ("east",), east=4, west=4)
    assert moves_of(first, over) == 4
    assert moves_of(first, over, moved({"east": 4, "west": 4}, west=4)) == 4  # it was dead
    assert moves_of(first, over, moved({"east": 4, "west": 4}, east=4)) == 4  # it came back


def test_what_a_cluster_gave_back_never_ran_there() -> None:
    refused = ReplicasRefused("east", "b", "a", 4, "class", "InsufficientResources")
    assert moves_of(moved({}, east=4), refused, moved({"east": 4}, west=4)) == 0


def test_objects_without_replicas_do_not_move() -> None:
    assert moves_of(moved({"east": 0}, west=0)) == 0


def test_a_wait_is_over_when_all_replicas_are_in_place() -> None:
    book = a_book()
    divided = Placement(replicas=ReplicaScheduling("Divided"))
    spec = Binding("b", "u", ObjectRef("v1", "Pod", "b"), 2, Requirements({"cpu": 1}), divided)
    book.fact(BindingRequested(spec))
    book.advance(3)
    book.decided(ScheduleRefused("b", "u", "FirstSchedule", 2, "Unschedulable"))
    book.advance(7)
    book.decided(ScheduleDecided("b", "u", "ScaleSchedule", 2, (TargetCluster("east", 2),)))
    found = book.finish(10)
    assert (found.wait_p99, found.waiting, found.unplaced, found.refusals) == (7, 0, 0, 1)


def test_a_pod_that_is_adopted_uses_its_cpu_once() -> None:
    """Also after its replica is released: it goes on running then, as a pod of others."""
    kind = Requirements({"cpu": 1000})
    running = PodsObserved("east", "n", (Pod("u", "p", kind, "n"),))
    share = NodeShare("n", (0,), pods=("u",))
    book = a_book()
    for node in into_buckets("east", [Node("n", {"cpu": 4000})], 1):
        book.fact(node)
    book.fact(BindingRequested(Binding("b", "u", ObjectRef("v1", "Pod", "b"), 1, kind)))
    book.fact(running)
    book.advance(2)
    book.decided(ReplicasAdopted("east", "b", "", (share,), kind, "already-there"))
    book.advance(4)
    book.fact(running)
    book.advance(6)
    book.decided(ReplicasReleased("east", "b", "", (share,)))
    assert book.finish(10).core_us == 10


# --- prices


def test_prices_are_read_as_the_clouds_write_them(tmp_path: Path) -> None:
    ours = tmp_path / "ours.csv"
    ours.write_text("instance-type,price_per_hour\nm5.large,0.096\n")
    assert read_prices(str(ours)).of_type == {"m5.large": 96_000}
    theirs = tmp_path / "theirs.csv"
    theirs.write_text("region,instance_type,price_per_hour,currency\nus,a,1.5,USD\neu,a,2,USD\n")
    assert (read_prices(f"{theirs}@eu").of_type, read_prices(f"{theirs}@eu").currency) == (
        {"a": 2_000_000},
        "USD",
    )


@pytest.mark.parametrize(
    ("text", "where", "says"),
    [
        (
            "region,instance_type,price_per_hour\nus,a,1\neu,a,2\n",
            "",
            "prices of 2 regions; choose one",
        ),
        ("instance_type,price_per_hour\na,cheap\n", "", "2: expected a price an hour, got 'cheap'"),
        ("instance_type,price_per_hour\na,nan\n", "", "expected a price an hour"),
        ("instance_type,price_per_hour\na,-1\n", "", "expected a price an hour"),
        ("type,price\na,1\n", "", "1: expected a column instance-type, got type, price"),
        ("instance_type,price_per_hour\n", "", "no prices"),
        ("region,instance_type,price_per_hour\nus,a,1\n", "@moon", "no prices of the region moon"),
    ],
)
def test_bad_prices_are_one_line(tmp_path: Path, text: str, where: str, says: str) -> None:
    path = tmp_path / "p.csv"
    path.write_text(text)
    with pytest.raises(PricesError, match=re.escape(says)) as caught:
        read_prices(f"{path}{where}")
    assert "\n" not in str(caught.value)


def test_a_missing_file_of_prices_is_said(tmp_path: Path) -> None:
    with pytest.raises(PricesError, match="No such file"):
        read_prices(str(tmp_path / "none.csv"))


# --- what may be changed


def test_settings_are_those_of_the_profiles() -> None:
    changes = changes_of(["strategy=most-allocated", "round-limit=100"])
    assert (changes.settings.strategy, changes.settings.round_limit, changes.policies) == (
        "most-allocated",
        100,
        (),
    )
    assert {setting.name for setting in SETTINGS} == {
        "strategy",
        "round-limit",
        "repeat-after",
        "provides-after",
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "colour=red",
            (
                "expected a manifest file or one of strategy=least-allocated|most-allocated, "
                "round-limit=NUMBER"
            ),
        ),
        ("strategy=best", "expected least-allocated or most-allocated, got 'best'"),
        ("round-limit=0", "expected a number from 1 to 1,000,000, got '0'"),
        ("round-limit=-1", "expected a number from 1"),
        ("nowhere.yaml", "there is no such file"),
    ],
)
def test_what_cannot_be_changed_is_one_line(text: str, says: str) -> None:
    with pytest.raises(ChangeError, match=re.escape(says)) as caught:
        changes_of([text])
    assert "\n" not in str(caught.value)


def test_a_file_has_to_hold_policies_alone(tmp_path: Path) -> None:
    path = tmp_path / "web.yaml"
    path.write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n")
    classes = tmp_path / "classes.yaml"
    classes.write_text(
        "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: high}\nvalue: 5\n"
    )
    with pytest.raises(
        ChangeError,
        match=r"expected policies that decide, got a PriorityClass \(.*classes.yaml:2\)",
    ):
        changes_of([str(classes)])
    with pytest.raises(
        ChangeError, match=r"web.yaml: expected policies only, got a ConfigMap \(.*web.yaml:2\)"
    ):
        changes_of([str(path)])
    assert (
        len(
            changes_of(
                [str(EXAMPLES / "pack-everything.yaml"), str(EXAMPLES / "spread-the-packed.yaml")]
            ).policies
        )
        == 2
    )
    assert "s4" in read_prices(str(EXAMPLES / "prices.csv")).of_type


def a_policy(name: str, packed: bool, **labels: str) -> Policy:
    selector = ResourceSelector("v1", "Pod", labels=LabelSelector(labels) if labels else None)
    how = ReplicaScheduling("Divided", "Aggregated" if packed else "Weighted", dynamic=not packed)
    return Policy("P", name, propagation=Propagation((selector,), Placement(replicas=how)))


def a_pod(policy: str = "", placement: Placement | None = None, **labels: str) -> Binding:
    return Binding(
        "b",
        "u",
        ObjectRef("v1", "Pod", "b"),
        1,
        placement=placement or Placement(),
        policy=policy,
        labels=labels,
    )


def test_which_bindings_a_changed_policy_takes() -> None:
    old, new = a_policy("where", False, tier="web"), a_policy("where", True, tier="web")
    held = {old.key: old}
    changes = Changes((new,))

    def taken(binding: Binding, by: Changes = changes) -> bool:
        return by.requested(binding, held).placement.replicas.preference == "Aggregated"

    assert taken(a_pod(old.key, tier="web"))
    assert not taken(a_pod("P//other", tier="db"))
    assert not taken(a_pod("ResourceBinding/by-hand", tier="web"))
    # it came without a policy
    assert taken(a_pod("", Placement(replicas=ReplicaScheduling("Divided")), tier="web"))
    assert taken(a_pod(old.key))  # under the policy, though its labels were never told
    # not selected any more
    assert not taken(a_pod(old.key, tier="web"), Changes((a_policy("where", True, tier="db"),)))


# --- the page


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.tags: dict[str, int] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] = self.tags.get(tag, 0) + 1
        self.found += [
            v
            for k, v in attrs
            if k in ("src", "href", "xlink:href") and v and not v.startswith("#")
        ]


EVIL = "</table><script>alert(1)</script>"


@pytest.fixture(scope="module")
def text() -> str:
    result = a_result(totals(), totals(), totals(refusals=7), name=EVIL)
    return page(
        result,
        ReportCommand(
            "wharfinger replay --with <b>", [judged(threshold_of("refusals>5%"), result.figures)]
        ),
    )


def test_the_page_stands_alone(text: str) -> None:
    links = _Links()
    links.feed(text)
    assert links.found == []
    assert links.tags["svg"] == len(plots(a_result(totals(), totals(), totals())))
    assert {"script", "link", "img", "iframe"}.isdisjoint(links.tags)
    assert re.findall(r"url\((?!#)", text) == []
    assert "@import" not in text
    assert "prefers-color-scheme: dark" in text
    assert "0 unchanged, 7 changed, beyond the error bar" in text


def test_names_cannot_break_out_of_the_page(text: str) -> None:
    assert "<script" not in text
    assert "wharfinger replay --with &lt;b&gt;" in text
    assert "<lab>" not in text


def test_plots_take_the_colours_of_the_page_and_are_the_same_every_time() -> None:
    result = a_result(totals(), totals(), totals())
    first = plots(result)[0]
    drawn = svg(first, result)
    assert drawn == svg(first, result)
    assert "var(--ink)" in drawn
    assert "#24292f" not in drawn
    assert "#ffffff" not in drawn


def test_the_plots_can_be_had_as_one_picture(tmp_path: Path) -> None:
    path = tmp_path / "plots.png"
    png(a_result(totals(), totals(), totals()), path, dpi=40)
    assert path.read_bytes().startswith(b"\x89PNG")
