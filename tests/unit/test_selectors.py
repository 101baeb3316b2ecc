"""Label selectors and node terms, operator by operator."""

from __future__ import annotations

import pytest

from wharfinger.domain.selectors import LabelSelector, NodeTerm, Operator, Requirement

LABELS = {"tier": "prod", "cores": "16", "empty": ""}


@pytest.mark.parametrize(
    ("key", "operator", "values", "holds"),
    [
        ("tier", "In", ("prod", "test"), True),
        ("tier", "In", ("test",), False),
        ("tier", "In", (), False),
        ("absent", "In", ("prod",), False),
        ("tier", "NotIn", ("test",), True),
        ("tier", "NotIn", ("prod",), False),
        ("absent", "NotIn", ("prod",), True),
        ("tier", "Exists", (), True),
        ("empty", "Exists", (), True),
        ("absent", "Exists", (), False),
        ("absent", "DoesNotExist", (), True),
        ("empty", "DoesNotExist", (), False),
        ("cores", "Gt", ("8",), True),
        ("cores", "Gt", ("16",), False),
        ("cores", "Lt", ("17",), True),
        ("cores", "Lt", ("100",), True),
        ("cores", "Lt", ("16",), False),
        ("cores", "Gt", ("-1",), True),
        ("cores", "Gt", ("8", "9"), False),
        ("cores", "Gt", ("eight",), False),
        ("cores", "Gt", (), False),
        ("tier", "Gt", ("1",), False),
        ("absent", "Lt", ("1",), False),
    ],
)
def test_each_operator(key: str, operator: Operator, values: tuple[str, ...], holds: bool) -> None:
    assert Requirement(key, operator, values).holds(LABELS) is holds


def test_a_selector_wants_all_its_parts_and_an_empty_one_wants_nothing() -> None:
    prod, big = {"tier": "prod"}, Requirement("cores", "Gt", ("8",))
    assert LabelSelector().matches({})
    assert LabelSelector(prod, (big,)).matches(LABELS)
    assert not LabelSelector({"tier": "test"}, (big,)).matches(LABELS)
    assert not LabelSelector(prod, (Requirement("cores", "Gt", ("16",)),)).matches(LABELS)


def test_an_empty_node_term_matches_no_node() -> None:
    assert not NodeTerm().matches(LABELS, "oslo-1")


def test_a_node_term_looks_at_labels_and_at_the_name() -> None:
    named = Requirement("metadata.name", "In", ("oslo-1",))
    prod = Requirement("tier", "In", ("prod",))
    assert NodeTerm(fields=(named,)).matches({}, "oslo-1")
    assert not NodeTerm(fields=(named,)).matches({}, "oslo-2")
    assert NodeTerm((prod,), (named,)).matches(LABELS, "oslo-1")
    assert not NodeTerm((prod,), (named,)).matches({"tier": "test"}, "oslo-1")
    assert not NodeTerm((Requirement("metadata.name", "Exists"),)).matches(LABELS, "oslo-1")
