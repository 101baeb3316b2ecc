"""Fleets whose clusters have quotas and grades obey the laws that all fleets obey: recovered,
replayed and redacted they decide the same, and a column that was mended is one that was made
again."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.fleets import Fleet, a_fleet
from tests.hunting import examples
from tests.properties.test_recovery_laws import CUTS, goes_on
from tests.properties.test_redaction import redacted

from wharfinger.history.deciders import decider_of
from wharfinger.history.export import replay_file
from wharfinger.kernel.recover import recover
from wharfinger.stages.fleet import columns
from wharfinger.stages.fleet.fork import fork
from wharfinger.stages.fleet.state import FleetState


def of_quotas(number: int, happenings: int = 30) -> Fleet:
    return a_fleet(number, Random(f"quotas {number}"), happenings, quotas=True)


@pytest.mark.parametrize("number", range(6))
def test_a_stream_taken_up_anywhere_goes_on_alike(number: int) -> None:
    fleet = of_quotas(number)
    rounds = fleet.by_stream()[fleet.stream]
    decider = decider_of(fleet.stream, rounds[0].round.profile)
    assert decider is not None
    for cut in sorted({len(rounds) * part // (CUTS + 1) for part in range(1, CUTS + 1)}):
        before, after = rounds[:cut], rounds[cut:]
        folded = recover(decider, decider.initial(fleet.stream), before)
        loaded = decider.load(fleet.stream, decider.dump(folded))
        goes_on(decider, folded, fleet.stream, before, after)
        goes_on(decider, loaded, fleet.stream, before, after)


def test_quotas_make_a_difference_in_these_fleets() -> None:
    """Else the laws above say nothing."""
    sources: set[str] = set()
    for number in range(6):
        for state in of_quotas(number).world.fleet_states():
            for record in state.bindings.values():
                sources.update(
                    state.estimated_by(record, state.clusters[name]) for name in record.targets
                )
    assert {"quota", "class"} <= sources


@settings(max_examples=examples(8), deadline=None)
@given(st.integers(1, 10_000))
def test_a_mended_column_is_one_made_anew(number: int) -> None:
    fleet = of_quotas(number, 12)
    (state,) = fleet.world.fleet_states()
    assert_columns_true(state)
    copied = fork(state)
    assert_columns_true(copied)


@pytest.mark.parametrize("number", [0, 3])
def test_counted_in_arrays_a_fleet_decides_the_same(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_lists = [d.body for r in of_quotas(number).rounds for d in r.round.decisions]
    monkeypatch.setattr(columns, "FEW", 1)
    fleet = of_quotas(number)
    assert [d.body for r in fleet.rounds for d in r.round.decisions] == in_lists
    assert_columns_true(next(fleet.world.fleet_states()))


@settings(max_examples=examples(8), deadline=None)
@given(st.integers(1, 10_000))
@example(556)  # a cluster is added again and only one of its buckets of nodes is sent again
def test_a_world_that_goes_on_from_here_knows_what_quotas_leave(number: int) -> None:
    """Though no stream keeps the quotas themselves, and whatever is on its way."""
    fleet = of_quotas(number, 10)
    (state,) = fleet.world.fleet_states()
    (going_on,) = fleet.world.fork().fleet_states()
    for name, cluster in state.clusters.items():
        assert going_on.clusters[name].quotas == cluster.quotas
    assert {n: r.targets for n, r in going_on.bindings.items()} == {
        n: r.targets for n, r in state.bindings.items()
    }


def assert_columns_true(state: FleetState) -> None:
    for record in state.bindings.values():
        column = state.column(record)
        anew = [c.estimate(record.class_key, column.demand, record.claim) for c in state.order]
        assert list(column.values) == anew
        assert (record.claim is None) == (
            record.spec.resource.namespace not in state.cluster_index.quoted
        )
    for cluster in state.clusters.values():
        quotas = () if cluster.capacity is None else cluster.capacity.quotas
        for namespace in {room.namespace for room in quotas}:
            assert state.cluster_index.quoted[namespace]


@pytest.mark.parametrize("number", [1, 4])
def test_quotas_bind_the_same_under_other_names(number: int, tmp_path: Path) -> None:
    exported = redacted(of_quotas(number, 12), tmp_path)
    assert replay_file(exported.path).result.divergences == ()
