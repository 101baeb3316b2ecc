"""Laws of what labels a node may have, held against every value that a label could take."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hunting import examples

from wharfinger.domain.node_pool import PoolOperator, PoolRequirement
from wharfinger.domain.selectors import NodeTerm, Operator, Requirement
from wharfinger.domain.workload import Requirements
from wharfinger.engine.provisioning.requirements import LabelSet, ValueSet

KEYS = ["size", "team", "zone"]
NUMBERS = [str(n) for n in range(-1, 8)]
WRITTEN = ["a", "b", "c", *NUMBERS]
IN_OTHER_WAYS = [f"{'-' if n < 0 else '+'}0{abs(n)}" for n in range(-3, 11)]
UNIVERSE: list[str | None] = [
    None,
    *WRITTEN,
    "-3",
    "-2",
    "8",
    "9",
    *IN_OTHER_WAYS,
    "never-written",
    "",
]
"""Every value that is written anywhere, some that nobody writes, integers in ways in which nobody
writes them, and none."""

values = st.lists(st.sampled_from(WRITTEN), max_size=4).map(tuple)
bound = st.sampled_from(NUMBERS).map(lambda n: (n,))


def lines(key: st.SearchStrategy[str]) -> st.SearchStrategy[PoolRequirement]:
    listed: tuple[PoolOperator, ...] = ("In", "NotIn")
    bare: tuple[PoolOperator, ...] = ("Exists", "DoesNotExist")
    compared: tuple[PoolOperator, ...] = ("Gt", "Lt", "Gte", "Lte")
    count = st.integers(0, 3)
    return st.one_of(
        st.builds(PoolRequirement, key, st.sampled_from(listed), values, count),
        st.builds(PoolRequirement, key, st.sampled_from(bare), st.just(()), count),
        st.builds(PoolRequirement, key, st.sampled_from(compared), bound, count),
    )


one_line = lines(st.just("size"))
several = st.lists(one_line, min_size=1, max_size=3)
pools = st.lists(lines(st.sampled_from(KEYS)), max_size=4)


def of(line: PoolRequirement) -> ValueSet:
    return ValueSet.of(line.operator, line.values, line.min_values)


def together(requirements: list[PoolRequirement]) -> ValueSet:
    found = of(requirements[0])
    for line in requirements[1:]:
        found = found.intersect(of(line))
    return found


def holds(line: PoolRequirement, value: str | None) -> bool:
    """By the plain words of the operators."""
    number = None if value is None or not value.lstrip("+-").isdigit() else int(value)
    match line.operator:
        case "In":
            return value in line.values
        case "NotIn":
            return value not in line.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    wanted = int(line.values[0])
    if number is None:
        return False
    return {
        "Gt": number > wanted,
        "Lt": number < wanted,
        "Gte": number >= wanted,
        "Lte": number <= wanted,
    }[line.operator]


@given(several)
@settings(max_examples=examples(300))
def test_a_value_is_allowed_when_every_line_allows_it(requirements: list[PoolRequirement]) -> None:
    found = together(requirements)
    for value in UNIVERSE:
        assert found.allows(value) == all(holds(line, value) for line in requirements), value


@given(several, several, several)
@settings(max_examples=examples(300))
def test_bringing_together_is_commutative_associative_and_idempotent(
    one: list[PoolRequirement], two: list[PoolRequirement], three: list[PoolRequirement]
) -> None:
    a, b, c = together(one), together(two), together(three)
    assert a.intersect(b) == b.intersect(a)
    assert a.intersect(b).intersect(c) == a.intersect(b.intersect(c))
    assert a.intersect(a) == a
    assert a.intersect(b).intersect(b) == a.intersect(b)


@given(several, several)
@settings(max_examples=examples(300))
def test_two_meet_when_some_node_satisfies_both(
    one: list[PoolRequirement], two: list[PoolRequirement]
) -> None:
    a, b = together(one), together(two)
    assert a.meets(b) == any(a.allows(value) and b.allows(value) for value in UNIVERSE)
    assert a.impossible == (not any(a.allows(value) for value in UNIVERSE))


@given(several)
def test_bounds_are_gone_once_values_are_listed(requirements: list[PoolRequirement]) -> None:
    found = together(requirements)
    if not found.complement:
        assert (found.gte, found.lte) == (None, None)


@given(pools)
def test_what_is_written_down_is_read_back_the_same(requirements: list[PoolRequirement]) -> None:
    found = LabelSet.of_pool(requirements)
    assert LabelSet.of_pool(found.requirements()) == found
    assert found.min_values == LabelSet.of_pool(found.requirements()).min_values


@given(pools, pools)
@settings(max_examples=examples(300))
def test_the_order_in_which_requirements_are_said_is_nothing(
    one: list[PoolRequirement], two: list[PoolRequirement]
) -> None:
    both = LabelSet.of_pool(one).intersect(LabelSet.of_pool(two))
    backwards = LabelSet.of_pool([*reversed(two), *reversed(one)])
    assert both == backwards
    assert hash(both) == hash(backwards)
    assert list(both) == sorted(both)
    assert both.text == backwards.text


@given(pools, pools, st.sets(st.sampled_from(KEYS)))
@settings(max_examples=examples(300))
def test_a_node_is_compatible_when_each_of_its_labels_could_be_as_asked(
    has: list[PoolRequirement], asked: list[PoolRequirement], known: set[str]
) -> None:
    mine, theirs = LabelSet.of_pool(has), LabelSet.of_pool(asked)

    def could_be(key: str) -> list[str | None]:
        """What a node may have, of a label that is spoken of, of one that every node has, and of
        any other."""
        own = mine.get(key)
        if own is not None:
            return [value for value in UNIVERSE if own.allows(value)]
        return UNIVERSE if key in known else [None]

    expected = all(any(theirs.of(key).allows(value) for value in could_be(key)) for key in theirs)
    assert mine.compatible(theirs, frozenset(known)) == expected
    assert (not mine.conflicts(theirs, frozenset(known))) == expected
    assert (not mine.refusal(theirs, frozenset(known))) == expected


@given(pools, pools)
def test_with_every_label_spoken_of_intersecting_is_symmetric(
    one: list[PoolRequirement], two: list[PoolRequirement]
) -> None:
    a, b = LabelSet.of_pool(one), LabelSet.of_pool(two)
    assert a.intersects(b) == b.intersects(a)
    if not a.impossible and not b.impossible:
        assert a.intersects(b) == (not a.intersect(b).impossible)


expressions = st.lists(lines(st.sampled_from(KEYS)), max_size=3).map(
    lambda found: tuple(Requirement(x.key, as_pod(x.operator), x.values) for x in found)
)


def as_pod(operator: PoolOperator) -> Operator:
    """Pods know no inclusive bounds."""
    match operator:
        case "Gte":
            return "Gt"
        case "Lte":
            return "Lt"
        case _:
            return operator


pods = st.builds(
    Requirements,
    node_selector=st.dictionaries(st.sampled_from(KEYS), st.sampled_from(WRITTEN), max_size=1),
    node_terms=st.lists(st.builds(NodeTerm, expressions), max_size=3).map(tuple),
)
nodes = st.dictionaries(st.sampled_from(KEYS), st.sampled_from([v for v in UNIVERSE if v]))


@given(pods, nodes)
@settings(max_examples=examples(300))
def test_a_pod_may_go_to_a_node_when_one_of_its_alternatives_says_so(
    pod: Requirements, labels: dict[str, str]
) -> None:
    by_kubernetes = all(labels.get(k) == v for k, v in pod.node_selector.items()) and (
        not pod.node_terms or any(term.matches(labels, "node-1") for term in pod.node_terms)
    )
    alternatives = LabelSet.alternatives(pod)
    assert any(a.satisfied_by(labels) for a in alternatives) == by_kubernetes
    assert any(LabelSet.of_labels(labels).compatible(a) for a in alternatives) == by_kubernetes
