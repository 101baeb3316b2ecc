"""Which policy has a workload: laws that hold for any policies whatever."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hunting import examples

from wharfinger.domain.placement import Placement
from wharfinger.domain.policy import Policy, Propagation, ResourceSelector
from wharfinger.domain.selectors import LabelSelector
from wharfinger.domain.workload import ObjectRef
from wharfinger.manifests.karmada.selection import policy_for

WEB = ObjectRef("apps/v1", "Deployment", "web", "ns")
LABELS = {"app": "web"}

selectors = st.builds(
    ResourceSelector,
    st.just("apps/v1"),
    st.sampled_from(["Deployment", "Deployment", "Job"]),
    st.sampled_from(["", "ns", "other"]),
    st.sampled_from(["", "", "web", "db"]),
    st.sampled_from([None, LabelSelector(LABELS), LabelSelector({"app": "db"})]),
)
propagations = st.builds(
    lambda selecting, priority, preempts: Propagation(
        tuple(selecting), Placement(), priority, preempts=preempts
    ),
    st.lists(selectors, max_size=2),
    st.integers(-2, 2),
    st.booleans(),
)


@st.composite
def policies(draw: st.DrawFn) -> list[Policy]:
    keys = draw(
        st.lists(
            st.tuples(st.sampled_from(["", "ns", "other"]), st.sampled_from("abcd")),
            unique=True,
            max_size=6,
        )
    )
    return [
        Policy(
            "PropagationPolicy" if namespace else "ClusterPropagationPolicy",
            name,
            namespace,
            draw(propagations),
        )
        for namespace, name in keys
    ]


def selects(policy: Policy) -> bool:
    return policy_for(WEB, LABELS, [policy]) is not None


@settings(max_examples=examples(200), deadline=None)
@given(policies(), st.data())
def test_the_order_of_policies_changes_nothing(every: list[Policy], data: st.DataObject) -> None:
    claimed = data.draw(st.sampled_from(["", *(p.key for p in every)]))
    shuffled = data.draw(st.permutations(every))
    assert policy_for(WEB, LABELS, every, claimed) == policy_for(WEB, LABELS, shuffled, claimed)


@settings(max_examples=examples(200), deadline=None)
@given(policies(), st.data())
def test_a_claim_is_lost_only_to_one_that_preempts_or_by_its_own_doing(
    every: list[Policy], data: st.DataObject
) -> None:
    claimed = data.draw(st.sampled_from(["", *(p.key for p in every)]))
    holder = next((p for p in every if p.key == claimed), None)
    found = policy_for(WEB, LABELS, every, claimed)
    assert (found is None) == (not any(selects(p) for p in every))
    if holder is None or not selects(holder):
        assert found == policy_for(WEB, LABELS, every)
    elif found != holder:
        assert found is not None
        assert found.propagation is not None
        assert holder.propagation is not None
        assert found.propagation.preempts
        assert bool(found.namespace) >= bool(holder.namespace)
        assert (
            bool(found.namespace) > bool(holder.namespace)
            or found.propagation.priority > holder.propagation.priority
        )


@settings(max_examples=examples(200), deadline=None)
@given(policies(), st.data())
def test_who_has_taken_over_keeps_it(every: list[Policy], data: st.DataObject) -> None:
    claimed = data.draw(st.sampled_from(["", *(p.key for p in every)]))
    found = policy_for(WEB, LABELS, every, claimed)
    assert found is None or policy_for(WEB, LABELS, every, found.key) == found
