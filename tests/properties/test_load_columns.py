"""Laws of load: the columns say of every node what the book says of it, and what nobody knows is
neither good nor bad."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hunting import examples

from wharfinger.domain.policy import HotWindow, LoadLimit, LoadPolicy, LoadWeight, SyncPeriod
from wharfinger.domain.scheduler import DynamicArgs
from wharfinger.engine.load.columns import LoadTable
from wharfinger.engine.load.node_loads import LoadBook, LoadView, Written, clamp
from wharfinger.events.node_load import HotValueObserved, NodeLoadObserved

S = 1_000_000
METRICS = ("cpu", "mem", "disk")
NODES = tuple("abcdef")

times = st.integers(0, 1200).map(lambda s: s * S)
loads = st.integers(0, 200_000) | st.just(2**31 - 1)
told_loads = loads | st.sampled_from((-1, -(2**70), 2**63))
policies = st.builds(
    LoadPolicy,
    st.lists(st.builds(SyncPeriod, st.sampled_from(METRICS), st.integers(1, 600)), max_size=4).map(
        tuple
    ),
    st.lists(
        st.builds(LoadLimit, st.sampled_from(METRICS), st.integers(0, 120_000)), max_size=3
    ).map(tuple),
    st.lists(
        st.builds(LoadWeight, st.sampled_from(METRICS), st.integers(0, 5) | st.just(10**9)),
        max_size=3,
    ).map(tuple),
    st.lists(st.builds(HotWindow, st.integers(1, 600), st.integers(1, 3)), max_size=2).map(tuple),
)
measurements = st.builds(
    NodeLoadObserved,
    st.just("oslo"),
    st.sampled_from(METRICS),
    st.just(60),
    times,
    st.dictionaries(st.sampled_from((*NODES, "gone")), told_loads),
)
hot_values = st.builds(
    HotValueObserved,
    st.just("oslo"),
    times,
    st.dictionaries(st.sampled_from(NODES), st.integers(0, 5)),
)
writings = st.builds(
    Written,
    st.dictionaries(st.sampled_from(METRICS), st.tuples(loads, times)),
    st.none() | st.tuples(st.integers(0, 5), times),
)
arguments = st.builds(DynamicArgs, st.sampled_from(("crane", "open", "closed")), st.booleans())


@st.composite
def books(draw: st.DrawFn) -> LoadBook:
    book = LoadBook()
    book.policy_applied("p", draw(policies))
    for told in draw(st.lists(measurements | hot_values, max_size=6)):
        book.observe(told)
    for node, written in draw(
        st.dictionaries(st.sampled_from(NODES), writings, max_size=3)
    ).items():
        book.written_on(node, written)
    for ordinal, (node, at) in enumerate(
        draw(st.lists(st.tuples(st.sampled_from(NODES), times), max_size=8))
    ):
        book.placed(node, ("web", ordinal), at)
    return book


@given(
    books(),
    times,
    arguments,
    st.lists(st.sampled_from(NODES), max_size=4),
    st.permutations((*NODES, "")),
)
def test_columns_say_of_every_node_what_the_book_says(
    book: LoadBook, now: int, args: DynamicArgs, came: list[str], names: list[str]
) -> None:
    view = LoadView(book, now)
    for node in came:
        view.came(node)
    columns = LoadTable(book).columns(names, 0, now, args)
    placed = columns.base * 0
    for node in came:
        placed[names.index(node)] += 1
    scores = columns.scores(placed)
    for slot, name in enumerate(names):
        if name:
            verdict = view.judge(name, args)
            assert columns.verdict[slot] == verdict.verdict
            assert verdict.metric == (
                columns.metrics[columns.metric[slot]] if columns.metric[slot] >= 0 else ""
            )
            assert scores[slot] == verdict.score
    assert columns.unknown == book.unknown(NODES, now)


@given(books(), st.lists(measurements | hot_values | policies, max_size=4), times, arguments)
def test_a_table_follows_its_book(
    book: LoadBook, later: list[object], now: int, args: DynamicArgs
) -> None:
    table = LoadTable(book)
    for told in later:
        table.columns(NODES, 0, now, args)
        if isinstance(told, LoadPolicy):
            book.policy_applied("p", told)
        elif isinstance(told, NodeLoadObserved | HotValueObserved):
            book.observe(told)
        book.placed("a", ("db", 0), now)
    fresh, followed = (
        LoadTable(book).columns(NODES, 0, now, args),
        table.columns(NODES, 0, now, args),
    )
    assert followed.verdict.tolist() == fresh.verdict.tolist()
    assert followed.scores().tolist() == fresh.scores().tolist()
    assert followed.unknown == fresh.unknown


@given(books(), times)
def test_in_the_open_way_a_node_of_which_nothing_is_known_is_neither_the_best_nor_the_worst(
    book: LoadBook, now: int
) -> None:
    args = DynamicArgs("open", damped=False)
    weighed = {w.metric for w in book.policy.weights if w.weight > 0}
    silent = book.judge("nobody", now, args)
    assert silent.verdict == 0
    known = [
        book.judge(n, now, args).load
        for n in book.known_nodes()
        if any(book.load(metric, n, now) is not None for metric in weighed)
    ]
    if known:
        assert min(known) <= silent.load <= max(known)


@given(books(), times, st.booleans())
def test_in_the_closed_way_only_what_is_known_passes(
    book: LoadBook, now: int, damped: bool
) -> None:
    for node in NODES:
        verdict = book.judge(node, now, DynamicArgs("closed", damped))
        assert (verdict.verdict == 0) <= (not verdict.unknown)


@settings(max_examples=examples(200))
@given(books(), times, arguments, st.sampled_from(NODES), st.integers(0, 5))
def test_replicas_that_come_in_a_burst_make_a_node_no_better(
    book: LoadBook, now: int, args: DynamicArgs, node: str, n: int
) -> None:
    view = LoadView(book, now)
    before = view.judge(node, args)
    view.came(node, n)
    after = view.judge(node, args)
    assert after.score <= before.score
    if args.damped:
        spread = sum((n - 1) // window.count for window in book.policy.hot)
        assert after.score <= clamp(before.load - 10 * max(0, spread))
    assert after.verdict == before.verdict


@given(books(), times, arguments)
def test_nothing_changes_before_the_next_change_that_was_foretold(
    book: LoadBook, now: int, args: DynamicArgs
) -> None:
    if book.written or not args.damped:
        return
    due = book.next_change(now)
    before = [book.judge(n, now, args) for n in NODES]
    last = now + 10**12 if due is None else due - 1
    assert [book.judge(n, last, args) for n in NODES] == before
