"""The loops of the packing algorithm. They choose the best place for a pod, put it there, and go on
with the next pod (`place_all`). Then a local search moves pods until new nodes can be smaller or
are not needed (`improve`).

Plain functions over arrays, without names, compiled when the distribution is built
(`engine.machine_code`). Integers only. `packing` makes the two tuples of arrays that all of them
use: `KernelTables` has the problem, `Bins` the result so far.

The words used here:

- A *bin* is a node that takes pods: an existing one, a pending one, or a new one. The existing and
  pending bins come first and are called fixed; they cost nothing more.
- A *class* is all pods with equal requirements. Its *shape* is all of the requirements but the
  amounts. A shape can have a next shape, with one preference given up.
- A *need* is what a shape requires of a node's labels, taints and devices.
- A *state* is what a bin can still become: its pool, its labels, and the devices requested of it.
- A *row* is an instance type of a state. The rows of a state are in order of price.
- A *domain* is one value of a topology key, such as one zone. A *group* is a set of pods that are
  counted per domain or per host.
"""

# What a compiler sees as the type of an array is not what a type checker knows.
# ruff: noqa: SIM102, SIM110
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wharfinger.engine.machine_code import Bits2, Byte1, Byte2, Int1, Int2, Int3, Word2

BLOCK, JOIN, SPREAD = 0, 1, 2
FIRST_FIT, PRICED = 0, 1
FAR = 2**62

FEW = 4
"""The local search tries to empty only nodes with at most this number of pods."""
TRIES = 12
"""The maximum number of pods of one node for which another place is searched, per attempt to shrink
the node."""

# Fields of `now`. FIXED, BINS: the number of fixed bins and of all bins. CLOCK: grows with each
# pod, to date cached states. MODE: FIRST_FIT or PRICED.
# BIN, STATE, ROW: the choice for the present pod. SHAPE: its shape, with what it has given up.
# WANT, WANT_A, WANT_B: what the caller must do before the next call, and for which numbers.
# WARM: the present run has begun. TEMPLATES: the number of templates. MOVES, STEPS: pods moved and
# nodes examined by the local search. RUN, POD: the present run and pod.
FIXED, BINS, PODS, CLOCK, MODE = 0, 1, 2, 3, 4
BIN, STATE, ROW, SHAPE = 5, 6, 7, 8
WANT, WANT_A, WANT_B, WARM, TEMPLATES, MOVES = 9, 10, 11, 12, 13, 14
STEPS, RUN, POD, JOINS = 15, 16, 17, 18

# Values of WANT: compute a transition (MEET, NARROW, OPEN), check a new node against limits
# (OPENED), lengthen the arrays (ROOM).
NOTHING, MEET, NARROW, OPEN, OPENED, ROOM = 0, 1, 2, 3, 4, 5

# Results that are no bin.
NO_PLACE, ASKING = -1, -2

ORDER = (
    "fits",
    "first_row",
    "enough",
    "row_for",
    "waste_of",
    "hosts_bear",
    "lowest",
    "domain_for",
    "resolve_known",
    "resolve",
    "best_fixed",
    "best_claim",
    "best_new",
    "choose",
    "resort",
    "bump_host",
    "count_in",
    "late",
    "put",
    "forget_costs",
    "begin_run",
    "joins",
    "place_one",
    "place_all",
    "unput",
    "same_ground",
    "may_leave",
    "best_for_mover",
    "shift_pod",
    "helps",
    "small_enough",
    "values_kept",
    "shrink",
    "cheaper_row",
    "improve",
)
"""The functions below, callees first."""

SIGNATURES = {"place_all": "KernelTables Bins i2 i1", "improve": "KernelTables Bins i0 i1 i1 i2"}
"""The functions that are called from outside, with the types of their arguments
(`engine.machine_code`)."""


class KernelTables(NamedTuple):
    """The arrays of a packing problem. States are added to it during a run, and the topology
    counters change. int64 unless noted; R: resources, S: states, D: the domains of all topology
    keys, key after key.

    Pods:

    - `ask` [classes + 1, R]: amounts of one pod; the last row is a pod without requests.
    - `shape_of` [classes]: shape of a class.
    - `need_of` [shapes]: need of a shape.
    - `next_of` [shapes]: the shape with one more preference given up; -1: none.
    - `host` [n, 4]: constraints towards pods on the same node: (group, kind, bound, 0). The bound
      is the most pods allowed there for a spread; else 1 if the pod belongs to the group.
    - `zone` [n, 6]: constraints towards pods in a domain: (key, group, kind, max skew, 1 if the pod
      belongs to the group, min domains). Constraints of one key are adjacent.
    - `bump` [n, 4]: groups that count the pod: (group, key or -1 for the host, node filter, flag).
      Flag with a key: 1: counts in all domains that its bin may get. Flag with the host: kind of
      the group.
    - `host_at`, `zone_at`, `bump_at` [shapes + 1]: where the rows of each shape begin in these.

    Topology counters:

    - `hosts` int32[groups, bins]: pods of a group on a bin; `host_total` [groups]: on all nodes.
    - `counts` [groups, D]: pods of a group in a domain; `total` [groups]: in all domains.
    - `universe` int8[groups, D]: 1 for a domain that the spread compares.
    - `key_at` [keys + 1]: where the domains of a key begin.

    States:

    - `meet` [S, needs]: the state after a pod with this need comes. `narrow` [S, D]: the state
      after the domain is fixed. `opens` [templates, needs]: the state of a new node. In all three,
      -1: not possible, -2: not computed yet.
    - `allows` int8[S, D]: 1 where the state allows the domain. `signature` [S]: equal for states
      that allow the same domains.
    - `passes` int8[filters, S]: 1 where the state passes a node filter.
    - `template_of` [S]: template of a state.

    Instance types of a state:

    - `row_at`, `row_end` [S]: its part of `row_alloc` [rows, R] (allocatable amounts) and
      `row_price` [rows], the cheapest first. Types that cost more than another and hold nothing
      more are left out.
    - `roof` [S, R]: of each resource the most that any of its types has.
    - `full_at`, `full_end` [S]: its part of `full_alloc` [n, R] and `full_bits` uint64[n, words].
      These have all its types, with a bit set of their label values. Only used with minValues.
    - `least` [S, keys, 3]: minValues of a label as (required values, first word, last word + 1 of
      `full_bits`); 0 required values: none.

    Templates and values:

    - `weight`, `shift` [R]: an amount is worth `weight * (amount >> shift)`.
    - `tier` [templates]: the same number for pools of equal weight, ascending.
    - `limited` int8[templates]: 1 where the caller must check each new node against limits.
    """

    ask: Int2
    shape_of: Int1
    need_of: Int1
    next_of: Int1
    host_at: Int1
    host: Int2
    zone_at: Int1
    zone: Int2
    bump_at: Int1
    bump: Int2
    hosts: Word2
    host_total: Int1
    counts: Int2
    total: Int1
    universe: Byte2
    key_at: Int1
    meet: Int2
    narrow: Int2
    allows: Byte2
    signature: Int1
    opens: Int2
    passes: Byte2
    row_at: Int1
    row_end: Int1
    row_alloc: Int2
    row_price: Int1
    roof: Int2
    full_at: Int1
    full_end: Int1
    full_alloc: Int2
    full_bits: Bits2
    least: Int3
    weight: Int1
    shift: Int1
    tier: Int1
    limited: Byte1
    template_of: Int1


class Bins(NamedTuple):
    """The result of a packing run so far. B: bins, P: pods, S: states, R: resources; int64.

    - `state` [B]: state of a bin. `used` [B, R]: requests of the pods that were put on it.
    - `free` [B, R]: free amounts of the fixed bins before the run.
    - `row` [B]: present instance type of a new bin. `pods` [B]: number of pods put on a bin.
    - `order` [B]: the new bins by number of pods, then by age.
    - `last` [B], `before` [P]: the pods of a bin as a linked list, the newest first; -1: the end.
    - `bin_of`, `shape_at`, `class_at` [P]: bin, shape and class of a pod that has a place.
    - `cost`, `waste`, `cost_state`, `cost_row` [B]: cached results of `best_claim` for the class
      that is being placed: increase in price, unused value, state and row with the pod.
    - `resolved`, `stamp` [S]: cached state after the pod comes, and the clock value when it was
      found.
    - `now` [20]: the scalars of the run, by the names above (`FIXED`, `BINS`, ...).
    """

    state: Int1
    used: Int2
    free: Int2
    row: Int1
    pods: Int1
    order: Int1
    last: Int1
    before: Int1
    bin_of: Int1
    shape_at: Int1
    class_at: Int1
    cost: Int1
    waste: Int1
    cost_state: Int1
    cost_row: Int1
    resolved: Int1
    stamp: Int1
    now: Int1


def fits(alloc, row, used, n, ask, c):
    """Returns whether the pods on a node and one more pod fit into a given capacity. The function
    is called for every node, so it takes whole arrays and indices, not slices.

    - `alloc` [rows, resources], `row`: the capacity.
    - `used` [nodes, resources], `n`: the requests of the pods on the node.
    - `ask` [classes, resources], `c`: the requests of the new pod.
    """
    for d in range(ask.shape[1]):
        if used[n, d] + ask[c, d] > alloc[row, d]:
            return False
    return True


def first_row(roof, row_alloc, row_end, state, start, used, n, ask, c):
    """Returns the cheapest instance type that holds the pods on a node and one more pod, as a row
    of `row_alloc`; -1: none. The types of a node state are stored in order of price, so the first
    that fits is the cheapest. The state of a node is its pool, the labels that it can have, and its
    devices.

    - `roof` [states, resources]: the highest amount of each resource that any type of a state has.
      If these amounts do not suffice, no type is tried.
    - `row_alloc` [rows, resources]: allocatable amounts of the types, state by state.
    - `row_end` [states]: the row after the last type of a state.
    - `state`: number of the node's state with the new pod. `start`: the first row to try.
    - `used` [nodes, resources], `n`: requests of the pods on node `n`.
    - `ask` [classes, resources], `c`: requests of the new pod, which has class `c`.

    Example: types with 2, 4 and 8 cores cost 10, 20 and 40. 3 cores are used and the pod requests
    2. The result is the row of the type with 8 cores.
    """
    if not fits(roof, state, used, n, ask, c):
        return -1
    for row in range(start, row_end[state]):
        if fits(row_alloc, row, used, n, ask, c):
            return row
    return -1


def enough(least, full_at, full_end, full_alloc, full_bits, state, used, n, ask, c):
    """Returns whether a node with one more pod still meets minValues of its pool. For each label
    with minValues: the instance types that hold all pods of the node must together have at least
    that number of different values. The state of a node is its pool, the labels that it can have,
    and its devices.

    - `least` [states, labels, 3]: for each label: (required number of values, first word, last word
      + 1 of `full_bits`); 0 required: the label has no minValues.
    - `full_at`, `full_end` [states]: the types of a state are `full_at` to `full_end` - 1 in the
      next two arrays.
    - `full_alloc` [types, resources]: allocatable amounts of each type.
    - `full_bits` uint64[types, words]: label values of each type, one bit per value. The bits of
      all types that fit are united and counted.
    - `state`: number of the node's state with the new pod.
    - `used` [nodes, resources], `n`: requests of the pods on node `n`.
    - `ask` [classes, resources], `c`: requests of the new pod, which has class `c`.

    Example: minValues 2 for the instance family. If only m5.4xlarge and m5.8xlarge hold the pods,
    there is 1 family, and the result is False.
    """
    for k in range(least.shape[1]):
        need, first, last = least[state, k, 0], least[state, k, 1], least[state, k, 2]
        if need == 0:
            continue
        found = 0
        for word in range(first, last):
            bits = np.uint64(0)
            for i in range(full_at[state], full_end[state]):
                if fits(full_alloc, i, used, n, ask, c):
                    bits |= full_bits[i, word]
            while bits != np.uint64(0):
                bits &= bits - np.uint64(1)
                found += 1
        if found < need:
            return False
    return True


def row_for(t, state, start, used, n, ask, c):
    """Returns the cheapest instance type that holds the pods on a node and one more pod, as a row
    of `t.row_alloc`. -1: no type holds them, or the types that do have too few different label
    values for minValues.

    - `t`: the arrays of the packing problem: pods, node states, instance types, counters
      (`KernelTables`).
    - `state`: number of the node's state with the new pod. The state of a node is its pool, the
      labels that it can have, and its devices. `start`: the first row to try.
    - `used` [nodes, resources], `n`: requests of the pods on node `n`.
    - `ask` [classes, resources], `c`: requests of the new pod, which has class `c`.
    """
    row = first_row(t.roof, t.row_alloc, t.row_end, state, start, used, n, ask, c)
    if row >= 0 and t.full_end[state] > t.full_at[state]:
        if not enough(
            t.least, t.full_at, t.full_end, t.full_alloc, t.full_bits, state, used, n, ask, c
        ):
            return -1
    return row


def waste_of(weight, shift, row_alloc, row, used, n, ask, c):
    """Returns what the unused space of a node with one more pod is worth: the sum of `weight *
    (unused amount >> shift)` over the resources, in billionths of a dollar an hour.

    - `weight`, `shift` [resources]: 2^shift units of a resource are worth the weight of this
      resource.
    - `row_alloc` [rows, resources], `row`: allocatable amounts of the node's instance type.
    - `used` [nodes, resources], `n`: requests of the pods on node `n`.
    - `ask` [classes, resources], `c`: requests of the new pod, which has class `c`.

    Example: 1000 units are unused, the shift is 3 and the weight 2: 2 * (1000 / 8) = 250.
    """
    found = 0
    for d in range(ask.shape[1]):
        found += weight[d] * ((row_alloc[row, d] - used[n, d] - ask[c, d]) >> shift[d])
    return found


def hosts_bear(first, last, host, hosts, host_total, n):
    """Returns whether a pod may go to node `n`, judged by the pods on this node. A group is a set
    of pods that one constraint selects. The constraints are:

    - `BLOCK`, anti-affinity and host ports: no pod of the group may be on the node.
    - `SPREAD`, topology spread over host names: at most `bound` pods of the group may be on the
      node before the new pod comes.
    - `JOIN`, affinity: a pod of the group must be on the node. Exception: if the group has no pod
      on any node and the new pod belongs to it, every node is allowed.

    Arguments:

    - `host` [rows, 4]: the constraints, as (group, kind, bound, 0). The kind is one of the three
      above. For `JOIN` the bound is 1 if the pod belongs to the group, else 0. The constraints of
      the pod are the rows `first` to `last` - 1.
    - `hosts` [groups, nodes]: number of pods of a group on a node.
    - `host_total` [groups]: number of pods of a group on all nodes.
    - `n`: the node; below 0: a new node without pods.
    """
    for i in range(first, last):
        group, kind, bound = host[i, 0], host[i, 1], host[i, 2]
        there = hosts[group, n] if n >= 0 else 0
        if kind == BLOCK:
            if there > 0:
                return False
        elif kind == SPREAD:
            if there > bound:
                return False
        elif there == 0 and (bound == 0 or host_total[group] > 0):
            return False
    return True


def lowest(t, key, group, least_domains):
    """Returns the number of pods of a group in the domain that has the fewest of them. From this
    minimum the skew of a topology spread is measured. Returns 0 if there are fewer domains than
    `least_domains` (minDomains), or none.

    A domain is one value of a topology key, such as one zone. A group is the set of pods that one
    constraint selects. `t`: the arrays of the packing problem: pods, node states, instance types,
    counters (`KernelTables`). `key`, `group`: numbers of the topology key and of the group. Only
    domains that the constraint compares are considered.

    Example: zones with 4, 2 and 3 pods give 2, or 0 if `least_domains` is 4.
    """
    low, domains = FAR, 0
    for d in range(t.key_at[key], t.key_at[key + 1]):
        if t.universe[group, d] != 0:
            domains += 1
            low = min(low, t.counts[group, d])
    return 0 if domains < least_domains or domains == 0 else low


def domain_for(t, state, first, last):
    """Chooses the domain (the value of a topology key, such as one zone) that a node gets when a
    pod is placed on it. Returns the number of the domain; -1: none is possible.

    A domain is possible if the node can be in it, and if it meets all constraints of the pod on
    this key: anti-affinity, affinity, topology spread. Of the possible domains, the one with the
    fewest pods that the topology spreads of the pod select is chosen; the first on ties.

    - `t`: the arrays of the packing problem: pods, node states, instance types, counters
      (`KernelTables`).
    - `state`: number of the node's state with the pod (its pool, labels and devices).
    - `first`, `last`: the constraints are the rows `first` to `last` - 1 of `t.zone`, all of one
      key.

    Example: a new node can be in zone a, b or c, where 2, 1 and 1 pods are. With maxSkew 1 for
    these pods zone a is not possible, and zone b is chosen.
    """
    key = t.zone[first, 0]
    best, best_load = -1, FAR
    for d in range(t.key_at[key], t.key_at[key + 1]):
        if t.allows[state, d] == 0:
            continue
        load, good = 0, True
        for i in range(first, last):
            group, kind, itself = t.zone[i, 1], t.zone[i, 2], t.zone[i, 4]
            there = t.counts[group, d]
            if kind == BLOCK:
                good = good and there == 0
            elif kind == JOIN:
                good = good and (there > 0 or (itself != 0 and t.total[group] == 0))
            else:
                low = lowest(t, key, group, t.zone[i, 5])
                good = good and t.universe[group, d] != 0 and there + itself - low <= t.zone[i, 3]
                load += there
        if good and load < best_load:
            best, best_load = d, load
    return best


def resolve(t, now, state, shape):
    """Computes the state of a node after one more pod is added. The state of a node is its pool,
    the labels that it can have, and its devices. For each topology key on which the pod has
    constraints, one domain is chosen (such as one zone), and the node is limited to this domain.

    Returns the number of the new state. `NO_PLACE`: the pod cannot be added. `ASKING`: `t` lacks
    the result of adding the pod; the caller must compute what `now[WANT]` names, and call again.

    - `t`: the arrays of the packing problem: pods, node states, instance types, counters
      (`KernelTables`).
    - `now`: the scalar values of this packing run (`Bins.now`).
    - `state`: number of the present state of the node.
    - `shape`: number of the pod's requirements without amounts.
    """
    found = t.meet[state, t.need_of[shape]]
    if found == ASKING:
        now[WANT], now[WANT_A], now[WANT_B] = MEET, state, t.need_of[shape]
    return resolve_known(t, now, found, shape)


def resolve_known(t, now, state, shape):
    """Limits a node to one domain for each topology key on which a new pod has constraints. A
    domain is one value of the key, such as one zone. Returns the number of the resulting state of
    the node (its pool, labels and devices).

    `NO_PLACE`: for one of the keys no domain is possible. `ASKING`: `t` lacks the resulting state;
    the caller must compute what `now[WANT]` names, and call again.

    - `t`: the arrays of the packing problem: pods, node states, instance types, counters
      (`KernelTables`).
    - `now`: the scalar values of this packing run (`Bins.now`).
    - `state`: number of the node's state with the pod, before domains are chosen. `NO_PLACE` and
      `ASKING` are returned unchanged.
    - `shape`: number of the pod's requirements without amounts.
    """
    first, last = t.zone_at[shape], t.zone_at[shape + 1]
    while state >= 0 and first < last:
        end = first + 1
        while end < last and t.zone[end, 0] == t.zone[first, 0]:
            end += 1
        domain = domain_for(t, state, first, end)
        if domain < 0:
            return NO_PLACE
        to = t.narrow[state, domain]
        if to == ASKING:
            now[WANT], now[WANT_A], now[WANT_B] = NARROW, state, domain
        state = to
        first = end
    return state


def best_fixed(t, b, now, cls):
    """Chooses an existing or pending node for the pod: the first one that can hold it, in the order
    of their numbers. Returns the number of the node, and writes the node and its new state (pool,
    labels and devices) to `now`.

    `NO_PLACE`: no existing or pending node can hold the pod. `ASKING`: `t` lacks a state of a node;
    the caller must compute what `now[WANT]` names, and call again.

    - `t`: the arrays of the packing problem: pods, node states, instance types, counters
      (`KernelTables`).
    - `b`: the nodes and what was placed on them (`Bins`).
    - `now`: the scalar values of this packing run (`b.now`); `now[SHAPE]` is the number of the
      pod's requirements without amounts.
    - `cls`: number of the pod's class (all pods with equal requirements).
    """
    shape, ask = now[SHAPE], t.ask
    first, last = t.host_at[shape], t.host_at[shape + 1]
    state_of, stamp, resolved, free, used = b.state, b.stamp, b.resolved, b.free, b.used
    host, hosts, host_total = t.host, t.hosts, t.host_total
    for n in range(now[FIXED]):
        if not fits(free, n, used, n, ask, cls):
            continue
        state = state_of[n]
        if stamp[state] != now[CLOCK]:
            resolved[state] = resolve(t, now, state, shape)
            stamp[state] = now[CLOCK]
        state = resolved[state]
        if state == ASKING:
            return ASKING
        if state >= 0 and hosts_bear(first, last, host, hosts, host_total, n):
            now[BIN], now[STATE], now[ROW] = n, state, -1
            return n
    return NO_PLACE


def best_claim(t, b, now, cls):
    """Chooses for the pod one of the new nodes that this run has added so far. Returns the number
    of the node, and writes the node, its new state (pool, labels and devices) and its instance type
    to `now`. -1: none of these nodes can hold the pod. `ASKING`: `t` lacks a state of a node; the
    caller must compute what `now[WANT]` names, and call again.

    - Mode `FIRST_FIT`: the first node that can hold the pod, in the order of `b.order` (the node
      with the fewest pods first).
    - Mode `PRICED`: the node whose price rises least with the pod. On ties, the node whose unused
      space is worth least, then the oldest node.

    Arguments:

    - `t`: the arrays of the packing problem: pods, node states, instance types, counters
      (`KernelTables`).
    - `b`: the nodes and what was placed on them (`Bins`). The rise in price is cached per node for
      all pods of a class, until the node changes.
    - `now`: the scalar values of this packing run (`b.now`); `now[SHAPE]` is the number of the
      pod's requirements without amounts.
    - `cls`: number of the pod's class (all pods with equal requirements).

    Example: with the pod, node 1 must become a type that costs 5 more, and node 2 keeps its type.
    In the mode `PRICED` node 2 is chosen.
    """
    shape, ask, by_price = now[SHAPE], t.ask, now[MODE] == PRICED
    first, last = t.host_at[shape], t.host_at[shape + 1]
    state_of, stamp, resolved, used, row_of, order = (
        b.state,
        b.stamp,
        b.resolved,
        b.used,
        b.row,
        b.order,
    )
    cost, waste, cost_state, cost_row = b.cost, b.waste, b.cost_state, b.cost_row
    host, hosts, host_total = t.host, t.hosts, t.host_total
    roof, row_alloc, row_at, row_end, row_price = (
        t.roof,
        t.row_alloc,
        t.row_at,
        t.row_end,
        t.row_price,
    )
    weight, shift, full_at, full_end = t.weight, t.shift, t.full_at, t.full_end
    clock = now[CLOCK]
    found, found_cost, found_waste = -1, FAR, FAR
    for i in range(now[FIXED], now[BINS]):
        n = i if by_price else order[i]
        here = state_of[n]
        if stamp[here] != clock:
            resolved[here] = resolve(t, now, here, shape)
            stamp[here] = clock
        state = resolved[here]
        if state < 0:
            if state == ASKING:
                return ASKING
            continue
        if cost_state[n] != state:
            cost_state[n] = state
            cost[n] = FAR
            start = row_of[n] if state == here else row_at[state]
            row = first_row(roof, row_alloc, row_end, state, start, used, n, ask, cls)
            if row >= 0 and full_end[state] > full_at[state]:
                row = row_for(t, state, row, used, n, ask, cls)
            if row >= 0 and hosts_bear(first, last, host, hosts, host_total, n):
                cost[n] = row_price[row] - row_price[row_of[n]]
                waste[n] = waste_of(weight, shift, row_alloc, row, used, n, ask, cls)
                cost_row[n] = row
        if cost[n] == FAR:
            continue
        if not by_price:
            found = n
            break
        if cost[n] < found_cost or (cost[n] == found_cost and waste[n] < found_waste):
            found, found_cost, found_waste = n, cost[n], waste[n]
    if found >= 0:
        now[BIN], now[STATE], now[ROW] = found, cost_state[found], cost_row[found]
    return found


def best_new(t, b, now, cls, below):
    """Chooses the pool and the instance type of one more new node for the pod. Returns the number
    of the new node, and writes its state (pool, labels and devices) and its type to `now`.

    Pools are tried in order of weight, the highest first. In the mode `FIRST_FIT` the first pool
    that can hold the pod is chosen. In the mode `PRICED` pools of equal weight are compared: the
    cheapest is chosen, and pools of lower weight are tried only if none of these can hold the pod
    for less than `below`. In both modes the type is the cheapest of the pool that holds the pod.

    `NO_PLACE`: no new node that costs less than `below` can hold the pod. `ASKING`: `t` lacks a
    state, or the arrays have no space for another node; the caller must do what `now[WANT]` names,
    and call again.

    - `t`: the arrays of the packing problem: pods, node states, instance types, counters
      (`KernelTables`).
    - `b`: the nodes and what was placed on them (`Bins`).
    - `now`: the scalar values of this packing run (`b.now`); `now[SHAPE]` is the number of the
      pod's requirements without amounts.
    - `cls`: number of the pod's class (all pods with equal requirements).
    - `below`: the price must be less than this, in billionths of a dollar an hour.

    Example: two pools of weight 10 cost 40 and 30, a pool of weight 5 costs 20. `PRICED` chooses
    30.
    """
    shape = now[SHAPE]
    if not hosts_bear(t.host_at[shape], t.host_at[shape + 1], t.host, t.hosts, t.host_total, -1):
        return NO_PLACE
    if now[BINS] + 1 >= len(b.used):
        now[WANT] = ROOM
        return ASKING
    found, found_price = NO_PLACE, below
    for p in range(now[TEMPLATES]):
        if found >= 0 and (now[MODE] == FIRST_FIT or t.tier[p] != t.tier[p - 1]):
            break
        state = t.opens[p, t.need_of[shape]]
        if state == ASKING:
            now[WANT], now[WANT_A], now[WANT_B] = OPEN, p, t.need_of[shape]
            return ASKING
        if state < 0:
            continue
        state = resolve_known(t, now, state, shape)
        if state == ASKING:
            return ASKING
        if state < 0:
            continue
        # The last bin is never used, so nothing is on it.
        row = row_for(t, state, t.row_at[state], b.used, len(b.used) - 1, t.ask, cls)
        if row >= 0 and t.row_price[row] < found_price:
            found, found_price = now[BINS], t.row_price[row]
            now[BIN], now[STATE], now[ROW] = found, state, row
    return found


def choose(t, b, now, cls):
    """Chooses a node for the pod. Returns the number of the node, and writes the node, its new
    state (pool, labels and devices) and its instance type to `now`.

    Tried in this order: existing and pending nodes (`best_fixed`), new nodes that this run has
    added so far (`best_claim`), one more new node (`best_new`). Exception in the mode `PRICED`: the
    node found by `best_claim` may become more expensive with the pod. If one more new node costs
    less than this rise in price, it is chosen instead. Example: the node found by `best_claim`
    needs a larger type that costs 30 more, and one more small node costs 20. One more node is
    chosen.

    `NO_PLACE`: no node can hold the pod. `ASKING`: the caller must do what `now[WANT]` names, and
    call again.

    - `t`: the arrays of the packing problem: pods, node states, instance types, counters
      (`KernelTables`).
    - `b`: the nodes and what was placed on them (`Bins`).
    - `now`: the scalar values of this packing run (`b.now`); `now[SHAPE]` is the number of the
      pod's requirements without amounts.
    - `cls`: number of the pod's class (all pods with equal requirements).
    """
    now[CLOCK] += 1
    found = best_fixed(t, b, now, cls)
    if found != NO_PLACE:
        return found
    found = best_claim(t, b, now, cls)
    if found == ASKING:
        return found
    if found == NO_PLACE:
        return best_new(t, b, now, cls, FAR)
    if now[MODE] == PRICED and b.cost[found] > 0:
        # The bin that was found would be forgotten.
        bin, state, row = now[BIN], now[STATE], now[ROW]
        other = best_new(t, b, now, cls, b.cost[found])
        if other != NO_PLACE:
            return other
        now[BIN], now[STATE], now[ROW] = bin, state, row
    return found


def resort(b, now, bin):
    """Moves node `bin` to its new position in `b.order` after the node got one more pod. `b.order`
    has the new nodes sorted by number of pods, the fewest first, and for equal numbers the oldest
    node first. This is one step of an insertion sort.

    `b`: the nodes and what was placed on them (`Bins`). `now`: the scalar values of this packing
    run (`b.now`). Example: the nodes 7, 8 and 9 have 1, 1 and 2 pods. When node 7 gets a second
    pod, the order becomes 8, 7, 9.
    """
    at = now[FIXED]
    while b.order[at] != bin:
        at += 1
    while at > now[FIXED] and b.pods[b.order[at - 1]] > b.pods[bin]:
        b.order[at] = b.order[at - 1]
        at -= 1
    while at + 1 < now[BINS]:
        other = b.order[at + 1]
        if b.pods[other] > b.pods[bin] or (b.pods[other] == b.pods[bin] and other > bin):
            break
        b.order[at] = other
        at += 1
    b.order[at] = bin


def bump_host(t, group, bin, by):
    t.hosts[group, bin] += by
    t.host_total[group] += by


def count_in(t, i, state, by):
    """Adds `by` to the counters of a topology group for a pod on a node. A group is a set of pods
    that one constraint selects. It has a counter for each domain (a value of the topology key, such
    as one zone).

    If the node can only be in one domain, the pod counts in this domain. If the node can be in
    several domains, the pod counts in all of them for anti-affinity, and in none for affinity and
    topology spread.

    - `t`: the arrays of the packing problem: pods, node states, instance types, counters
      (`KernelTables`); `t.counts` and `t.total` are changed.
    - `i`: the row of `t.bump` that names the group and its topology key.
    - `state`: number of the node's state (its pool, labels and devices).
    - `by`: 1 to add the pod, -1 to subtract it.

    Example: a new node can be in zone a or b. A pod with anti-affinity counts in both zones.
    """
    group, key, everywhere = t.bump[i, 0], t.bump[i, 1], t.bump[i, 3]
    found, domain = 0, -1
    for d in range(t.key_at[key], t.key_at[key + 1]):
        if t.allows[state, d] != 0:
            found, domain = found + 1, d
    if found == 1:
        t.counts[group, domain] += by
        t.total[group] += by
    elif everywhere != 0 and found > 1:
        for d in range(t.key_at[key], t.key_at[key + 1]):
            if t.allows[state, d] != 0:
                t.counts[group, d] += by
        t.total[group] += by


def late(t, b, bin, state):
    """Corrects the topology counters (pods per domain, such as a zone) when the possible domains of
    a node change after pods were placed on it. For each pod on the node, the counts under the old
    state are subtracted, and the counts under the new state are added.

    - `t`: the arrays of the packing problem: pods, node states, instance types, counters
      (`KernelTables`).
    - `b`: the nodes and what was placed on them (`Bins`).
    - `bin`: the node; `b.state[bin]` is the old state (pool, labels and devices). `state`: the new
      state.
    """
    pod = b.last[bin]
    while pod >= 0:
        shape = b.shape_at[pod]
        for i in range(t.bump_at[shape], t.bump_at[shape + 1]):
            if t.bump[i, 1] >= 0:
                if t.passes[t.bump[i, 2], b.state[bin]] != 0:
                    count_in(t, i, b.state[bin], -1)
                if t.passes[t.bump[i, 2], state] != 0:
                    count_in(t, i, state, 1)
        pod = b.before[pod]


def put(t, b, now, pod, cls):
    """Places a pod on the node that `choose` wrote to `now`. Updates the node (its state, instance
    type and used amounts) and all topology counters. If the node is a new one, it is added.

    - `t`: the arrays of the packing problem: pods, node states, instance types, counters
      (`KernelTables`).
    - `b`: the nodes and what was placed on them (`Bins`).
    - `now`: the scalar values of this packing run (`b.now`).
    - `pod`: index of the pod. `cls`: number of its class.
    """
    n, state, shape = now[BIN], now[STATE], now[SHAPE]
    if n == now[BINS]:
        now[BINS] += 1
        b.state[n] = state
        b.order[n] = n
    elif b.state[n] != state:
        if t.signature[b.state[n]] != t.signature[state]:
            late(t, b, n, state)
        b.state[n] = state
    for d in range(t.ask.shape[1]):
        b.used[n, d] += t.ask[cls, d]
    b.row[n] = now[ROW]
    b.pods[n] += 1
    b.before[pod] = b.last[n]
    b.last[n] = pod
    b.bin_of[pod], b.shape_at[pod], b.class_at[pod] = n, shape, cls
    b.cost_state[n] = -9
    for i in range(t.bump_at[shape], t.bump_at[shape + 1]):
        if t.passes[t.bump[i, 2], state] != 0:
            if t.bump[i, 1] < 0:
                bump_host(t, t.bump[i, 0], n, 1)
            else:
                count_in(t, i, state, 1)


def forget_costs(b, now):
    for n in range(now[BINS]):
        b.cost_state[n] = -9


def begin_run(t, b, now, cls):
    now[SHAPE] = t.shape_of[cls]
    now[WARM] = 1
    forget_costs(b, now)


def joins(t, shape):
    """Returns whether pods with these requirements have affinity to pods on the same node. Then
    placing one of them can change which nodes the next one may use, so cached costs must be
    dropped.

    `t`: the tables of the problem (`KernelTables`). `shape`: the requirements without the amounts,
    by number.
    """
    for i in range(t.host_at[shape], t.host_at[shape + 1]):
        if t.host[i, 1] == JOIN:
            return True
    return False


def place_one(t, b, now, cls, pod):
    """Places one pod. If no node can hold it, one of the pod's preferences (such as preferred
    affinity) is given up and the pod is tried again, until it has a place or no preference is left.
    Returns the number of the node. `NO_PLACE`: no node can hold the pod even without preferences.
    `ASKING`: nothing was placed; the caller must do what `now[WANT]` names (such as computing a
    missing state of a node), and call again.

    - `t`: the arrays of the packing problem: pods, node states, instance types, counters
      (`KernelTables`).
    - `b`: the nodes and what was placed on them (`Bins`).
    - `now`: the scalar values of this packing run (`b.now`).
    - `cls`: number of the pod's class (all pods with equal requirements). `pod`: index of the pod.
    """
    while True:
        found = choose(t, b, now, cls)
        if found == ASKING:
            return found
        if found >= 0:
            break
        if t.next_of[now[SHAPE]] < 0:
            return NO_PLACE
        now[SHAPE] = t.next_of[now[SHAPE]]
        forget_costs(b, now)
    put(t, b, now, pod, cls)
    if now[MODE] == FIRST_FIT and found >= now[FIXED]:
        resort(b, now, found)
    if now[SHAPE] != t.shape_of[cls]:  # the next one tries with all its preferences again
        begin_run(t, b, now, cls)
    elif joins(t, now[SHAPE]):
        forget_costs(b, now)
    return found


def place_all(t, b, runs, stuck):
    """Places groups of equal pods, one pod after another. Returns True when all groups are
    finished. Returns False if the caller must first do what `now[WANT]` names: compute a missing
    state of a node, lengthen the arrays, or check a new node against the limits of its pool. Then
    the caller calls again, and the function continues where it stopped.

    - `t`: the arrays of the packing problem: pods, node states, instance types, counters
      (`KernelTables`).
    - `b`: the nodes and what was placed on them (`Bins`).
    - `runs` [groups, 3]: (class, index of the first pod, index of the last pod + 1).
    - `stuck` [groups]: output: index of the first pod without a place. The later pods of this group
      then have no place either. If all pods of the group have a place: index of the last pod + 1.
      Example: a group has the pods 0 to 4, and pod 3 has no place. `runs` has (class, 0, 5), and
      `stuck` is 3.
    """
    now = b.now
    now[WANT] = NOTHING
    while now[RUN] < len(runs):
        run = now[RUN]
        cls, last = runs[run, 0], runs[run, 2]
        if now[WARM] == 0:
            now[POD] = runs[run, 1]
            begin_run(t, b, now, cls)
        while now[POD] < last:
            before = now[BINS]
            found = place_one(t, b, now, cls, now[POD])
            if found == ASKING:
                return False
            if found == NO_PLACE:
                break
            now[POD] += 1
            if now[BINS] > before and t.limited[t.template_of[b.state[found]]] != 0:
                now[WANT], now[WANT_A], now[WANT_B] = OPENED, found, b.state[found]
                return False
        stuck[run] = now[POD]
        now[RUN] += 1
        now[WARM] = 0
    return True


def unput(t, b, pod):
    """Takes a pod off its node: lowers the used amounts, the number of pods and the counters of
    pods per node. The topology counters per domain (such as per zone) stay as they are, because the
    caller moves the pod to another node in the same domains.

    - `t`: the arrays of the packing problem: pods, node states, instance types, counters
      (`KernelTables`).
    - `b`: the nodes and what was placed on them (`Bins`).
    - `pod`: index of the pod.
    """
    n, shape, cls = b.bin_of[pod], b.shape_at[pod], b.class_at[pod]
    for d in range(t.ask.shape[1]):
        b.used[n, d] -= t.ask[cls, d]
    b.pods[n] -= 1
    if b.last[n] == pod:
        b.last[n] = b.before[pod]
    else:
        other = b.last[n]
        while b.before[other] != pod:
            other = b.before[other]
        b.before[other] = b.before[pod]
    for i in range(t.bump_at[shape], t.bump_at[shape + 1]):
        if t.bump[i, 1] < 0 and t.passes[t.bump[i, 2], b.state[n]] != 0:
            bump_host(t, t.bump[i, 0], n, -1)


def same_ground(t, shape, state, other):
    """Returns whether a pod can move from one node to another without any change of the topology
    counters per domain (a domain is one value of a topology key, such as one zone). A group is a
    set of pods that one constraint counts; its node filter says on which nodes they are counted.
    The result is True in two cases:

    - No group counts the pod, and the pod has no constraints per domain.
    - The node filters of all groups that count the pod give the same result for both nodes. In
      addition, both nodes can be in the same domains; this is not needed if the pod has no
      constraints per domain and no group counts it per domain.

    Arguments:

    - `t`: the arrays of the packing problem: pods, node states, instance types, counters
      (`KernelTables`).
    - `shape`: number of the pod's requirements without amounts.
    - `state`, `other`: numbers of the states (pool, labels and devices) of the two nodes.
    """
    if t.zone_at[shape] == t.zone_at[shape + 1] and t.bump_at[shape] == t.bump_at[shape + 1]:
        return True
    if t.signature[state] != t.signature[other]:
        if t.zone_at[shape] < t.zone_at[shape + 1]:
            return False
        for i in range(t.bump_at[shape], t.bump_at[shape + 1]):
            if t.bump[i, 1] >= 0:
                return False
    for i in range(t.bump_at[shape], t.bump_at[shape + 1]):
        if t.passes[t.bump[i, 2], state] != t.passes[t.bump[i, 2], other]:
            return False
    return True


def may_leave(t, shape):
    """Returns whether the local search may move a pod to another node. It may not in two cases: the
    pod has affinity to other pods with the topology key kubernetes.io/hostname, or other pods can
    have affinity with this key to the pod.

    `t`: the arrays of the packing problem: pods, node states, instance types, counters
    (`KernelTables`). `shape`: number of the pod's requirements without amounts.
    """
    for i in range(t.host_at[shape], t.host_at[shape + 1]):
        if t.host[i, 1] == JOIN:
            return False
    for i in range(t.bump_at[shape], t.bump_at[shape + 1]):
        if t.bump[i, 1] < 0 and t.bump[i, 3] == JOIN:
            return False
    return True


def best_for_mover(t, b, now, pod, source, most):
    """Searches for another new node to which the local search can move a pod. Returns the number of
    the node whose price rises least with the pod, and writes its new state and instance type to
    `now`; -1: no node is possible.

    A node is possible if it can hold the pod, if its price rises by less than `most`, and if the
    move changes no topology counter per domain (`same_ground`). Nodes without pods are skipped. On
    ties the node whose unused space is worth least is chosen.

    - `t`: the arrays of the packing problem: pods, node states, instance types, counters
      (`KernelTables`).
    - `b`: the nodes and what was placed on them (`Bins`).
    - `now`: the scalar values of this packing run (`b.now`); `now[STEPS]` grows by the number of
      new nodes.
    - `pod`: index of the pod. `source`: the node that the pod leaves.
    - `most`: the rise in price must be less than this, in billionths of a dollar an hour.

    Example: `most` is 10, and the prices of three nodes would rise by 0, 5 and 20. The first is
    chosen.
    """
    shape, cls, state_from, ask = b.shape_at[pod], b.class_at[pod], b.state[source], t.ask
    need = t.need_of[shape]
    first, last = t.host_at[shape], t.host_at[shape + 1]
    state_of, stamp, resolved, used, row_of, pods = (
        b.state,
        b.stamp,
        b.resolved,
        b.used,
        b.row,
        b.pods,
    )
    host, hosts, host_total, meet, signature = t.host, t.hosts, t.host_total, t.meet, t.signature
    roof, row_alloc, row_at, row_end, row_price = (
        t.roof,
        t.row_alloc,
        t.row_at,
        t.row_end,
        t.row_price,
    )
    weight, shift, full_at, full_end = t.weight, t.shift, t.full_at, t.full_end
    now[CLOCK] += 1
    clock = now[CLOCK]
    found, found_cost, found_waste = -1, most, FAR
    for n in range(now[FIXED], now[BINS]):
        if n == source or pods[n] == 0:
            continue
        here = state_of[n]
        if stamp[here] != clock:
            stamp[here] = clock
            to = meet[here, need]
            if to >= 0 and (
                signature[to] != signature[here] or not same_ground(t, shape, state_from, to)
            ):
                to = NO_PLACE
            resolved[here] = to
        state = resolved[here]
        if state < 0:
            continue
        row = first_row(
            roof,
            row_alloc,
            row_end,
            state,
            row_of[n] if state == here else row_at[state],
            used,
            n,
            ask,
            cls,
        )
        if row < 0:
            continue
        cost = row_price[row] - row_price[row_of[n]]
        if cost > found_cost or cost >= most:
            continue
        waste = waste_of(weight, shift, row_alloc, row, used, n, ask, cls)
        if cost == found_cost and waste >= found_waste:
            continue
        if full_end[state] > full_at[state] and row_for(t, state, row, used, n, ask, cls) < 0:
            continue
        if hosts_bear(first, last, host, hosts, host_total, n):
            found, found_cost, found_waste = n, cost, waste
            now[STATE], now[ROW] = state, row
    now[STEPS] += now[BINS] - now[FIXED]
    return found


def shift_pod(t, b, pod, to, state, row):
    """Moves a pod from its node to the node `to`. Returns by how much the price of the node `to`
    rises, in billionths of a dollar an hour. The price of the node that the pod leaves stays as it
    is.

    - `t`: the arrays of the packing problem: pods, node states, instance types, counters
      (`KernelTables`).
    - `b`: the nodes and what was placed on them (`Bins`).
    - `pod`: index of the pod.
    - `state`, `row`: state (pool, labels and devices) and instance type that the node `to` gets.
    """
    shape, cls = b.shape_at[pod], b.class_at[pod]
    unput(t, b, pod)
    before = t.row_price[b.row[to]]
    b.state[to], b.row[to] = state, row
    for d in range(t.ask.shape[1]):
        b.used[to, d] += t.ask[cls, d]
    b.pods[to] += 1
    b.before[pod] = b.last[to]
    b.last[to] = pod
    b.bin_of[pod] = to
    for i in range(t.bump_at[shape], t.bump_at[shape + 1]):
        if t.bump[i, 1] < 0 and t.passes[t.bump[i, 2], state] != 0:
            bump_host(t, t.bump[i, 0], to, 1)
    return t.row_price[row] - before


def helps(t, b, pod, n, target):
    """Returns whether moving a pod away from node `n` brings the node closer to a cheaper instance
    type. It does if the pod requests a resource that exceeds the cheaper type: all pods of the node
    together request more of this resource than the type has.

    - `t`: the arrays of the packing problem: pods, node states, instance types, counters
      (`KernelTables`).
    - `b`: the nodes and what was placed on them (`Bins`).
    - `pod`: index of the pod.
    - `target`: the cheaper type, a row of `t.row_alloc`; -1: the node is to be emptied, so every
      pod helps.

    Example: the pods request 5 cores and 2 GiB, and the cheaper type has 4 cores and 8 GiB. Only a
    pod that requests cpu helps.
    """
    if target < 0:
        return True
    for d in range(t.ask.shape[1]):
        if b.used[n, d] > t.row_alloc[target, d] and t.ask[b.class_at[pod], d] > 0:
            return True
    return False


def small_enough(t, b, n, target):
    """Returns whether the pods that are still on node `n` fit into the cheaper instance type
    `target`, compared resource by resource.

    - `t`: the arrays of the packing problem: pods, node states, instance types, counters
      (`KernelTables`).
    - `b`: the nodes and what was placed on them (`Bins`).
    - `target`: the cheaper type, a row of `t.row_alloc`; -1: the node is to be emptied, so the
      result is whether no pod is on it any more.
    """
    if target < 0:
        return b.pods[n] == 0
    for d in range(t.ask.shape[1]):
        if b.used[n, d] > t.row_alloc[target, d]:
            return False
    return True


def values_kept(t, b, n, target):
    """Returns whether node `n`, with the pods that are still on it, meets minValues of its pool:
    the instance types that hold these pods must have enough different label values. Always True for
    a node that is emptied or whose pool has no minValues.

    - `t`: the arrays of the packing problem: pods, node states, instance types, counters
      (`KernelTables`). The last row of `t.ask` is a pod without requests; `enough` needs one more
      pod, and gets this one.
    - `b`: the nodes and what was placed on them (`Bins`).
    - `target`: -1: the node is emptied; otherwise its new instance type.
    """
    state = b.state[n]
    if target < 0 or t.full_end[state] == t.full_at[state]:
        return True
    none = len(t.ask) - 1
    return enough(
        t.least, t.full_at, t.full_end, t.full_alloc, t.full_bits, state, b.used, n, t.ask, none
    )


def shrink(t, b, now, n, target, moved, came):
    """Tries to make one new node cheaper by local search. Moves its pods to other new nodes until
    the remaining pods fit into a cheaper instance type, or until the node is empty. Returns the net
    saving in billionths of a dollar an hour: price saved on this node - rise in price of the nodes
    that take the pods. If there is no net saving, or if the node would not meet minValues any more,
    all moves are undone and 0 is returned.

    - `t`: the arrays of the packing problem: pods, node states, instance types, counters
      (`KernelTables`).
    - `b`: the nodes and what was placed on them (`Bins`).
    - `now`: the scalar values of this packing run (`b.now`).
    - `n`: the node.
    - `target`: the cheaper type, a row of `t.row_alloc`; -1: empty the node.
    - `moved` [pods], `came` [pods, 3]: work arrays.

    At most `TRIES` pods are tried. Example: a node costs 40 and the cheaper type 20. One pod moves,
    and the node that takes it must become a type that costs 5 more. The result is 20 - 5 = 15.
    """
    saved = t.row_price[b.row[n]] - (t.row_price[target] if target >= 0 else 0)
    count, cost, tries = 0, 0, 0
    done = False
    pod = b.last[n]
    while not done and pod >= 0 and tries < TRIES:
        following = b.before[pod]
        if helps(t, b, pod, n, target):
            tries += 1
            to = (
                best_for_mover(t, b, now, pod, n, saved - cost)
                if may_leave(t, b.shape_at[pod])
                else -1
            )
            if to >= 0:
                moved[count] = pod
                came[count, 0], came[count, 1] = b.state[to], b.row[to]
                cost += shift_pod(t, b, pod, to, now[STATE], now[ROW])
                count += 1
                done = small_enough(t, b, n, target)
            elif target < 0:
                break
        pod = following
    if done and cost < saved and values_kept(t, b, n, target):
        if target >= 0:
            b.row[n] = target
        now[MOVES] += count
        return saved - cost
    for i in range(count - 1, -1, -1):
        to = b.bin_of[moved[i]]
        shift_pod(t, b, moved[i], n, b.state[n], b.row[n])
        b.state[to], b.row[to] = came[i, 0], came[i, 1]
    return 0


def cheaper_row(t, b, n):
    """Returns the next cheaper instance type for node `n`, as a row of `t.row_alloc`: the most
    expensive of the types that cost less than its present one; -1: none.

    `t`: the tables of the problem (`KernelTables`). `b`: the nodes of the run (`Bins`).
    """
    row = b.row[n] - 1
    while row >= t.row_at[b.state[n]] and t.row_price[row] >= t.row_price[b.row[n]]:
        row -= 1
    return row if row >= t.row_at[b.state[n]] else -1


def improve(t, b, steps, order, moved, came):
    """Lowers the total price of the new nodes by local search. For each node: if it has at most
    `FEW` pods, tries to empty it by moving its pods to other new nodes. If that saves nothing, or
    if the node has more pods, tries to move pods away until the next cheaper instance type
    suffices. Repeats until a pass over all nodes saves nothing or `steps` is reached. Returns the
    total saving in billionths of a dollar an hour.

    - `t`: the arrays of the packing problem: pods, node states, instance types, counters
      (`KernelTables`).
    - `b`: the nodes and what was placed on them (`Bins`).
    - `steps`: how many nodes may be examined as a new place for a pod. When it is reached, no
      further node is tried.
    - `order`: the new nodes, in the order in which they are tried.
    - `moved` [pods], `came` [pods, 3]: work arrays.
    """
    now = b.now
    now[STEPS] = 0
    total, again = 0, True
    while again:
        again = False
        for n in order:
            if b.pods[n] == 0 or now[STEPS] >= steps:
                continue
            saved = shrink(t, b, now, n, -1, moved, came) if b.pods[n] <= FEW else 0
            target = cheaper_row(t, b, n) if b.pods[n] > 0 else -1
            if saved == 0 and target >= 0:
                saved = shrink(t, b, now, n, target, moved, came)
            total += saved
            again = again or saved > 0
    return total
