"""A plugin that somebody else wrote: the example of docs/plugins.md, installed as a distribution of
its own, used as it says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.node_rules import Both

from wharfinger.domain.cluster_objects import ClusterObjects
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.pod_traits import PodTraits
from wharfinger.domain.scheduler import Profile
from wharfinger.domain.workload import Requirements
from wharfinger.engine.framework.cycle import Framework
from wharfinger.engine.framework.profile import default_profile, framework
from wharfinger.engine.framework.snapshot import Snapshot
from wharfinger.engine.nodes.message import message
from wharfinger.events.intake import compile_manifests
from wharfinger.events.policies import PolicyApplied
from wharfinger.manifests.kubernetes import installed_plugins
from wharfinger.manifests.parse import load_manifests

DOCUMENT = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text()


def block(language: str, number: int = 0) -> str:
    found: list[str] = re.findall(rf"```{language}\n(.*?)```", DOCUMENT, re.DOTALL)
    return found[number]


def forget() -> None:
    for known in (
        installed_plugins.installed,
        installed_plugins.plugin_class,
        installed_plugins.known_plugins,
    ):
        known.cache_clear()


def install(folder: Path, entry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution with one entry point."""
    metadata = folder / "racks-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: racks\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[wharfinger.plugins]\n{entry}\n")
    monkeypatch.syspath_prepend(folder)
    forget()


@pytest.fixture
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "racks.py").write_text(block("python"))
    said = re.search(r"^Racks = \"(.*)\"$", block("toml"), re.MULTILINE)
    assert said is not None
    install(tmp_path, f"Racks = {said[1]}", monkeypatch)
    yield
    monkeypatch.undo()
    forget()


@pytest.fixture
def _installed_with_a_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "racks_in_service.py").write_text(block("python", 1))
    install(tmp_path, "RacksInService = racks_in_service:RacksInService", monkeypatch)
    yield
    monkeypatch.undo()
    forget()


def profile(text: str) -> Profile:
    loaded = load_manifests(text, "scheduler.yaml")
    made = compile_manifests(loaded.manifests)
    assert [*loaded.errors, *made.errors] == []
    (fact,) = [fact.data for fact in made.facts if isinstance(fact.data, PolicyApplied)]
    assert fact.policy.scheduler is not None
    return fact.policy.scheduler.profiles[0]


def only_racks(found: Profile) -> Framework:
    """Without the others, whose scores are not in question."""
    points = {
        p: tuple(u for u in uses if u.name == "Racks" or p in ("queueSort", "bind"))
        for p, uses in found.points.items()
    }
    return framework(Profile(points=points, arguments=found.arguments))


def web(uid: str, node: str = "") -> Pod:
    return Pod(uid, uid, Requirements(pod=PodTraits("shop", {"app": "web"})), node)


NODES = [
    Node(f"n{i}", {"cpu": 4000}, labels={"example.com/rack": rack})
    for i, rack in enumerate(["r1", "r2", "r7"])
]


@pytest.mark.usefixtures("_installed")
def test_the_documented_example_does_what_it_says() -> None:
    found = profile(block("yaml"))
    assert ("Racks", 5) in [(use.name, use.weight) for use in found.at("score")]
    assert [use.name for use in found.at("filter")][-1] == "Racks"
    outcome = only_racks(found).run(Snapshot.of(NODES, [web("a", "n0"), web("b", "n0")]), web("c"))
    assert outcome.first["n2"].reasons == ("node(s) were in rack r7, which is out of service",)
    assert outcome.totals == {"n0": 0, "n1": 500}
    assert outcome.best == ("n1",)
    nothing_alike = only_racks(found).run(Snapshot.of(NODES, []), Pod("c", "c", Requirements()))
    assert nothing_alike.scores == {"Racks": None}


@pytest.mark.usefixtures("_installed")
def test_an_installed_plugin_stands_in_no_profile_by_itself() -> None:
    assert profile(block("yaml").partition("profiles:")[0]) == default_profile()


def test_a_plugin_that_is_not_installed_is_refused_at_its_line() -> None:
    loaded = load_manifests(block("yaml"), "scheduler.yaml")
    (error,) = compile_manifests(loaded.manifests).errors
    assert str(error).startswith(
        "scheduler.yaml:8: profiles[0].plugins.multiPoint.enabled[0].name: "
        "expected one of the plugins"
    )


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("NodeName = racks:Racks", "there is a plugin of this name already"),
        ("Racks = nowhere:Racks", "plugin Racks: nowhere:Racks cannot be loaded"),
        ("Racks = json:dumps", "expected json:dumps to be a class"),
    ],
)
def test_an_entry_point_that_is_no_plugin_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str, said: str
) -> None:
    install(tmp_path, entry, monkeypatch)
    try:
        loaded = load_manifests(block("yaml"), "scheduler.yaml")
        (error,) = compile_manifests(loaded.manifests).errors
        assert "expected installed plugins that can be loaded (" in str(error)
        assert said in str(error)
        assert "\n" not in str(error)
    finally:
        monkeypatch.undo()
        forget()


@pytest.mark.usefixtures("_installed_with_a_form")
def test_a_plugin_with_an_array_form_is_read_from_arrays_and_decides_the_same() -> None:
    found = profile(block("yaml").replace("Racks", "RacksInService"))
    both = Both(NODES, ClusterObjects(), found)
    assert [both.agree(Requirements({"cpu": 3000})) for _ in range(3)].count(None) == 1
    cls = both.book.class_of(Requirements({"cpu": 3000}))
    assert both.placer.fallback.of(cls) is None, "it is not asked node by node"
    assert message(both.placer, cls) == (
        "0/3 nodes are available: 1 node(s) were in a rack that is out of service, "
        "2 Insufficient cpu."
    )
