"""The loops of Solve: what is the best place for a pod, put it there, and the next; then move pods until nodes shrink.

Plain functions over arrays which know no names; `engine.nodes.compiled` makes machine code of the very same functions, and until
it is there they are called as they are. Integers only. All they read lies in two named tuples, made by `packing`:

`Tables`, which grow while they are read. R resources, S states, D domains of all topology keys after each other:

- `ask` [classes + 1, R]: amounts of one pod, the last of none; `shape_of` [classes]. A *shape* is all of a pod but its amounts.
- `need_of` [shapes]: what it asks of a node's labels, taints and devices; `next_of` [shapes]: the shape it becomes when it gives
  up a preference, -1: none.
- `host_at` [shapes + 1], `host` [n, 4]: what other pods on the same node mean to it: (group, kind, most or whether it selects
  itself, 0). `zone_at`, `zone` [n, 6]: what pods in the domains of a key mean: (key, group, kind, max skew, selects itself,
  min domains), those of a key together. `bump_at`, `bump` [n, 4]: which groups count it: (group, key or -1 for the node itself,
  filter, 1: in all domains it might come to; for the node itself: the kind of group).
- `hosts` [groups, bins]: pods of a group on a bin; `host_total` [groups]. `counts` [groups, D], `total` [groups], `universe`
  [groups, D] 1: a domain that counts. `key_at` [keys + 1]: where the domains of a key begin.
- a *state* is what a bin can still be: a pool, its labels, the devices asked for. `meet` [S, needs], `narrow` [S, D]: the state
  when such a pod comes, or a domain is fixed; -1 it cannot, -2 not looked up yet. `allows` int8[S, D]. `signature` [S]: equal for
  states that allow the same domains. `opens` [templates, needs]: as `meet`, for a new node. `passes` int8[filters, S].
- `row_at`, `row_end` [S]: the instance types of a state in `row_alloc` [rows, R], `row_price` [rows], the cheapest first; those
  that cost more than another and hold nothing more are left out. `roof` [S, R]: the most of each that any holds.
- `full_at`, `full_end` [S]: where there are minValues, all types: `full_alloc` [n, R], `full_bits` uint64[n, words]: their values;
  `least` [S, keys, 3]: (how many values, first word, last word + 1), 0: nothing asked.
- `weight` [R], `shift` [R]: what an amount is worth: `weight * (amount >> shift)`.
- `tier` [templates]: templates in order; those of a tier are equally heavy. `limited` int8[templates]: a new node counts
  against limits, so each is asked for. `template_of` [S].

`Bins`, which are written. The first `fixed` are there already, or on their way and cost nothing more:

- `state` [B], `used` [B, R], `free` [B, R] (of the fixed ones), `row` [B], `pods` [B], `order` [B]: claims by pods, then age.
- `last` [B], `before` [P]: the pods of a bin as a list; `bin_of`, `shape_at`, `class_at` [P].
- `cost`, `waste`, `cost_state`, `cost_row` [B]: what is known for the class that is being placed.
- `resolved`, `stamp` [S]: what a state becomes for the pod that is being placed, and for which pod that was found.
- `now` [20]: see the names below.
"""

# What a compiler sees as the type of an array is not what a type checker knows.
# ruff: noqa: SIM102, SIM110
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np

BLOCK, JOIN, SPREAD = 0, 1, 2
FIRST_FIT, PRICED = 0, 1
FAR = 2**62

FEW = 4
"""A node with more pods than these is not tried to be done without."""
TRIES = 12
"""So many pods of one node are tried to be moved away for a cheaper type."""

# Fields of `now`.
FIXED, BINS, PODS, CLOCK, MODE = 0, 1, 2, 3, 4
BIN, STATE, ROW, SHAPE = 5, 6, 7, 8
WANT, WANT_A, WANT_B, WARM, TEMPLATES, MOVES = 9, 10, 11, 12, 13, 14
STEPS, RUN, POD, JOINS = 15, 16, 17, 18

# What is wanted.
NOTHING, MEET, NARROW, OPEN, OPENED, ROOM = 0, 1, 2, 3, 4, 5

# What became of a pod.
NO_PLACE, ASKING = -1, -2

ORDER = ("fits", "first_row", "enough", "row_for", "waste_of", "hosts_bear", "lowest", "domain_for", "resolve_known", "resolve",
         "best_fixed", "best_claim", "best_new", "choose", "resort", "bump_host", "count_in", "late", "put", "forget_costs",
         "begin_run", "joins", "place_one", "place_all", "unput", "same_ground", "may_leave", "best_for_mover", "shift_pod",
         "helps", "small_enough", "values_kept", "shrink", "cheaper_row", "improve")  # fmt: skip
"""The functions below, callees first."""


def fits(alloc, row, used, n, ask, c):
    """Whether what is on bin `n` and a pod of class `c` are within one row of `alloc`. These small ones take few arrays and never a
    part of one: they are called for every node."""
    for d in range(ask.shape[1]):
        if used[n, d] + ask[c, d] > alloc[row, d]:
            return False
    return True


def first_row(roof, row_alloc, row_end, state, start, used, n, ask, c):
    """The cheapest instance type of a state, from row `start` on, that holds both; -1: none."""
    if not fits(roof, state, used, n, ask, c):
        return -1
    for row in range(start, row_end[state]):
        if fits(row_alloc, row, used, n, ask, c):
            return row
    return -1


def enough(least, full_at, full_end, full_alloc, full_bits, state, used, n, ask, c):
    """Whether the types that hold both have as many values of each label as is asked for."""
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
    row = first_row(t.roof, t.row_alloc, t.row_end, state, start, used, n, ask, c)
    if row >= 0 and t.full_end[state] > t.full_at[state]:
        if not enough(t.least, t.full_at, t.full_end, t.full_alloc, t.full_bits, state, used, n, ask, c):
            return -1
    return row


def waste_of(weight, shift, row_alloc, row, used, n, ask, c):
    """What is paid for and not used."""
    found = 0
    for d in range(ask.shape[1]):
        found += weight[d] * ((row_alloc[row, d] - used[n, d] - ask[c, d]) >> shift[d])
    return found


def hosts_bear(first, last, host, hosts, host_total, n):
    """Whether the pods on a bin let one of the shape with these rows be with them. `n` below zero: a new one."""
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
    """How many pods the emptiest domain has; 0 where there are fewer domains than there shall be."""
    low, domains = FAR, 0
    for d in range(t.key_at[key], t.key_at[key + 1]):
        if t.universe[group, d] != 0:
            domains += 1
            low = min(low, t.counts[group, d])
    return 0 if domains < least_domains or domains == 0 else low


def domain_for(t, state, first, last):
    """The domain that constraints `first` to `last`, all of one key, want: that with the fewest pods, then the first; -1: none."""
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
    """What the state becomes when a pod of this shape comes: -1 it cannot come, -2 something must be looked up first."""
    found = t.meet[state, t.need_of[shape]]
    if found == ASKING:
        now[WANT], now[WANT_A], now[WANT_B] = MEET, state, t.need_of[shape]
    return resolve_known(t, now, found, shape)


def resolve_known(t, now, state, shape):
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
    """The first bin in order that is there already."""
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
    """Of the new nodes so far: the first that takes it, or, by price, the one that becomes dearer by the least, and of those the
    one with the least to spare. Costs are kept over pods of a class, and found again where a node has changed."""
    shape, ask, by_price = now[SHAPE], t.ask, now[MODE] == PRICED
    first, last = t.host_at[shape], t.host_at[shape + 1]
    state_of, stamp, resolved, used, row_of, order = b.state, b.stamp, b.resolved, b.used, b.row, b.order
    cost, waste, cost_state, cost_row = b.cost, b.waste, b.cost_state, b.cost_row
    host, hosts, host_total = t.host, t.hosts, t.host_total
    roof, row_alloc, row_at, row_end, row_price = t.roof, t.row_alloc, t.row_at, t.row_end, t.row_price
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
    """A new node of the first template that can make one; by price the cheapest of the equally heavy ones. Only where it costs less
    than `below`."""
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
    """The bin has one pod more, and goes behind those with fewer, and behind older ones with as many."""
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
    """A group counts a pod in the domain that its bin has, or, where it says so, in all that it might have."""
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
    """The bin's domain is known only now: pods that came before are counted as they would have been."""
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
    """The pod goes to where `choose` found."""
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
    """Whether where the first pod went changes what other nodes are to the next one."""
    for i in range(t.host_at[shape], t.host_at[shape + 1]):
        if t.host[i, 1] == JOIN:
            return True
    return False


def place_one(t, b, now, cls, pod):
    """Returns the bin; `ASKING`; or `NO_PLACE`, when it has given up all that it can."""
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
    """Runs of equal pods, one after another: `runs` [n, 3]: class, first pod, last + 1. `stuck` [n]: the pod from which on none of
    the run found a place, or its end. Returns whether all is done; else `now` says what is wanted, and it shall be called again."""
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
    """The pod leaves its bin; counts of domains stay, since it goes to another bin in the same domains."""
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
    """Whether a pod of this shape counts in both states the same to others."""
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
    """A pod that others on its node may want to be with stays, and one that wants to be with others."""
    for i in range(t.host_at[shape], t.host_at[shape + 1]):
        if t.host[i, 1] == JOIN:
            return False
    for i in range(t.bump_at[shape], t.bump_at[shape + 1]):
        if t.bump[i, 1] < 0 and t.bump[i, 3] == JOIN:
            return False
    return True


def best_for_mover(t, b, now, pod, source, most):
    """Another new node that takes it and becomes dearer by less than `most`; -1: none. `b.resolved` says for each state what it
    becomes, found once."""
    shape, cls, state_from, ask = b.shape_at[pod], b.class_at[pod], b.state[source], t.ask
    need = t.need_of[shape]
    first, last = t.host_at[shape], t.host_at[shape + 1]
    state_of, stamp, resolved, used, row_of, pods = b.state, b.stamp, b.resolved, b.used, b.row, b.pods
    host, hosts, host_total, meet, signature = t.host, t.hosts, t.host_total, t.meet, t.signature
    roof, row_alloc, row_at, row_end, row_price = t.roof, t.row_alloc, t.row_at, t.row_end, t.row_price
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
            if to >= 0 and (signature[to] != signature[here] or not same_ground(t, shape, state_from, to)):
                to = NO_PLACE
            resolved[here] = to
        state = resolved[here]
        if state < 0:
            continue
        row = first_row(
            roof, row_alloc, row_end, state, row_of[n] if state == here else row_at[state], used, n, ask, cls
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
    """From where it is to `to`; what that costs more."""
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
    """Whether the pod takes of what is short for the node to be of a cheaper type. `target` -1: all must go."""
    if target < 0:
        return True
    for d in range(t.ask.shape[1]):
        if b.used[n, d] > t.row_alloc[target, d] and t.ask[b.class_at[pod], d] > 0:
            return True
    return False


def small_enough(t, b, n, target):
    if target < 0:
        return b.pods[n] == 0
    for d in range(t.ask.shape[1]):
        if b.used[n, d] > t.row_alloc[target, d]:
            return False
    return True


def values_kept(t, b, n, target):
    """Whether with what is left on it there is still a choice as large as is asked for. What is on the last bin is nothing."""
    state = b.state[n]
    if target < 0 or t.full_end[state] == t.full_at[state]:
        return True
    none = len(t.ask) - 1
    return enough(t.least, t.full_at, t.full_end, t.full_alloc, t.full_bits, state, b.used, n, t.ask, none)


def shrink(t, b, now, n, target, moved, came):
    """Pods of a node go elsewhere until the rest fits into `target`, a cheaper type, or all do (-1), where that saves more than it
    costs: what is saved. Else all is as it was, and 0. `moved` [P], `came` [P, 3]: room to work in."""
    saved = t.row_price[b.row[n]] - (t.row_price[target] if target >= 0 else 0)
    count, cost, tries = 0, 0, 0
    done = False
    pod = b.last[n]
    while not done and pod >= 0 and tries < TRIES:
        following = b.before[pod]
        if helps(t, b, pod, n, target):
            tries += 1
            to = best_for_mover(t, b, now, pod, n, saved - cost) if may_leave(t, b.shape_at[pod]) else -1
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
    """The next cheaper type of a node's state, from the dearest down; -1: none is."""
    row = b.row[n] - 1
    while row >= t.row_at[b.state[n]] and t.row_price[row] >= t.row_price[b.row[n]]:
        row -= 1
    return row if row >= t.row_at[b.state[n]] else -1


def improve(t, b, steps, order, moved, came):
    """Nodes become smaller or go, in `order` and again, as long as that saves anything and `steps` last: what it saves."""
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
