"""Which sources are believed: what the setting takes, and what it then refuses."""

from __future__ import annotations

import pytest
from tests.counter import withdrawn

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.value import Value
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.codec import decode, made
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.event_part import EventPart
from wharfinger.events.streams import BINDINGS, CLUSTERS, NODE_LOAD
from wharfinger.events.ticks import Ticked
from wharfinger.runtime.believed_sources import ALL_BELIEVED, BelievedSources
from wharfinger.runtime.settings import SettingsError, load_settings

WITHDRAWN = "io.wharfinger.binding.withdrawn.v1"


def of(source: str, data: Value | None = None) -> Event[Value]:
    return made(data or withdrawn(0).data, id=derived_id("b"), source=source, subject="web")


def believed(text: str, source: str, data: Value | None = None) -> bool:
    return not BelievedSources.parse(text).refusal(BINDINGS.name, of(source, data))


@pytest.mark.parametrize(
    ("text", "source", "expected"),
    [
        ("", "/anybody", True),
        ("none", "/anybody", False),
        ("none", "/wharfinger/command-line", True),
        ("none", "/wharfinger", False),
        ("/cd/=wharfinger.bindings", "/cd/shop", True),
        ("/cd/=wharfinger.bindings", "/cd", False),
        ("/cd/=wharfinger.bindings", "/cdx", False),
        ("/cd/=wharfinger.bindings", "/wharfinger/collector", True),
        ("/cd=wharfinger.bindings", "/cd", True),
        ("/cd=wharfinger.bindings", "/cd/shop", False),
        ("/cd=wharfinger.clusters", "/cd", False),
        ("/cd=wharfinger.clusters, /cd=wharfinger.bindings", "/cd", True),
        (f"urn:x?a=b={WITHDRAWN}", "urn:x?a=b", True),
        ("urn:x=io.wharfinger.binding.requested.v1", "urn:x", False),
    ],
)
def test_what_is_believed(text: str, source: str, expected: bool) -> None:
    assert believed(text, source) is expected


def test_what_belongs_on_another_topic_is_not_believed_on_this_one() -> None:
    listed = BelievedSources.parse("/load/=wharfinger.node-load")
    assert listed.refusal(NODE_LOAD.name, of("/load/oslo"))
    assert not believed("/x/=wharfinger.clusters", "/x/", Ticked("fleet/0", 1))
    assert believed("/x/=wharfinger.clusters", "/x/", ClusterObserved(Cluster("oslo")))


def test_of_a_part_only_the_source_is_looked_at() -> None:
    part = EventPart("id", 1, 2, "0" * 64, "")
    assert believed("/cd/=wharfinger.bindings", "/cd/shop", part)
    assert not believed("/cd/=wharfinger.bindings", "/other", part)


def test_the_refusal_is_one_line_that_says_what_was_expected() -> None:
    listed = BelievedSources.parse("/cd/=wharfinger.bindings,urn:cmdb=wharfinger.clusters")
    assert listed.refusal(BINDINGS.name, of("/attacker")) == (
        f"wharfinger.bindings: {WITHDRAWN} from the source /attacker; "
        "expected one of /wharfinger/..., /cd/"
    )
    hostile = listed.refusal(CLUSTERS.name, of("/\x1b[31m\n" + "x" * 5000))
    assert hostile.isprintable()
    assert len(hostile) < 400
    many = ",".join(f"/s{n}=wharfinger.bindings" for n in range(9))
    assert BelievedSources.parse(many).refusal("t", of("/x")).endswith("/s4, and 4 more")


def test_events_of_before_are_believed_without_a_list() -> None:
    assert ALL_BELIEVED.refusal(BINDINGS.name, decode(of("/any").body)) == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("/cd/", "expected SOURCE=TOPIC or SOURCE=TYPE, or none alone, got '/cd/'"),
        ("=wharfinger.bindings", "expected SOURCE=TOPIC"),
        ("none,/cd/=wharfinger.bindings", "expected SOURCE=TOPIC"),
        ("/=wharfinger.bindings", "expected more of a source than '/'"),
        ("/cd/*=wharfinger.bindings", "expected a source, or its beginning up to a '/'"),
        ("/c d=wharfinger.bindings", "expected a source, or its beginning up to a '/'"),
        ("/wharfinger/api=wharfinger.bindings", "the plane's are believed"),
        ("/cd=wharfinger.bindings.v2", "expected an event type, or one of the topics"),
        ("/cd=wharfinger.decisions", "expected an event type, or one of the topics"),
        ("/cd=io.wharfinger.binding.requested", "expected an event type"),
        ("/cd=io.wharfinger.schedule.decided.v1", "expected an event type"),
        ("/cd=", "expected an event type"),
    ],
)
def test_a_list_that_cannot_be_right_is_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings({"believed_sources": text})
    (line,) = caught.value.lines
    assert line.startswith("--believed-sources: ")
    assert said in line
    assert "\n" not in line
