"""The inner loops of placement: filter and score every node for a class, place one replica on the
best node, update that node, place the next replica.

These are plain functions over arrays, compiled ahead of time (`engine.machine_code`). Where no
machine code is available, they run as Python. So they use only what both support: integers, loops
and arguments that are arrays. No loop over nodes allocates memory. Where a formula uses doubles
(balanced allocation, spread weights, score normalisation) the operations have one fixed order, so
that the last bit is equal everywhere.

All arrays are int64 unless noted. N: number of slots, of which the first `size` are used. A
*domain* is the code of one value of a topology key.

The state of the nodes:
- `free`, `alloc` [resources, N]: free and allocatable amounts, in the unit of the resource
  (milli-CPU, bytes, ...). A node with too many pods has a negative free amount.
- `inverse` float64[2, N]: 1 / allocatable cpu and 1 / allocatable memory (both at least 1).
- `held` [2, N]: cpu and memory of the pods on the node, as scores count them.
- `static` [N]: 0, or an encoded verdict (see `verdicts`) that does not depend on usage. An earlier
  filter of the profile has a smaller verdict.
- `plus` [N]: the part of the score that depends neither on usage nor on other nodes.
- `load` [2 + windows, N]: row 0: base of the load score; row 1: replicas placed in this batch;
  other rows: recent placements by hot window. `per` [windows]: number of placements that add 1 to
  the hot value.

The class of pods:
- `asks` [n, 3]: (row of `free`, requested amount, encoded verdict of a node that has less). A
  verdict of 0: the amount is charged to the node, but not checked.
- `form` [9]: (strategy, weight of the fit score, weight of the balance score, 1: balance by change,
  1: quick, cpu and memory of the pod as scores count them, 1: measured load is scored, its weight).
- `fit` [n, 4]: the resources of the fit score: (0: row of `held`, 1: row of `free`; row of `alloc`;
  weight; requested amount).
- `balance` [n, 2]: the resources of the balance score: (row of `free`, requested amount).
- `shape` [points, 2]: (utilization in percent, score 0..100) of RequestedToCapacityRatio.

The constraints of the class on other pods (built by `topology`). `codes` [keys, N]: the domain of
each node by topology key, -1: the node lacks the label. `counts`: counters of pods by domain, one
range of counters for each constraint. In each row, `key` is a row of `codes` (in `blocks` also -1:
each node is a domain of its own), `base` is the start of the range in `counts`, and `bump` is what
one pod of the class adds to a counter:
- `blocks` [n, 4]: (key, base, bump, verdict). Refuses nodes whose domain has such pods.
- `joins` [n, 3]: (key, base, bump). Refuses nodes whose domain has no such pods. `joined` [4]:
  (number of such pods in the cluster, 1: the first pod of a group may go anywhere, verdict, number
  of placed pods when `place_run` returns early).
- `hard` [n, 9]: hard topology spread: (key, base, number of domains, maxSkew, 1: the pod matches
  its own selector, minDomains, verdict for a missing label, verdict for too much skew, bump).
- `likes` [n, 3]: (key, base, bump). The sums of the counters are scored.
- `soft` [n, 6]: soft topology spread: (key, base, number of domains, maxSkew, bump, 1: the key is
  the host name, so that the range has one counter per slot).

`quick` is 1 if cpu and memory alone decide the fit and balance scores, every node has both, and
every amount times 100 is exact in a double. The compiler vectorises these passes; the result is the
same.
"""

# What a compiler sees as the type of an array is not what a type checker knows.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np

LEAST, MOST, RATIO = 1, 2, 3

QUICK_MAX = 2**46
"""100 times this is exact in a double, and so is the integer part of a quotient of two such."""

FAR = 2**62
"""Larger than any raw score."""

STRETCH = 64
"""Number of slots in a block that `tally_of` checks at once."""

HOT_COST = 10
SCORE_MAX = 100

ORDER = (
    "share",
    "local_score",
    "judge_one",
    "whole_part",
    "judge_quick",
    "judge",
    "better",
    "best_of",
    "top_of",
    "tally_of",
    "apply",
    "domains_of",
    "refuse",
    "weigh_facts",
    "weigh_likes",
    "weigh_spread",
    "weigh",
    "place_run",
    "climb",
    "place_many",
)
"""The functions below, callees first."""

SIGNATURES = {
    "judge_one": "i0 i1 i2 i2 i2 i1 i2 i1 i2 i2 i2 i2 i1 i1 i1",
    "judge": "i0 i1 i2 i2 f2 i2 i1 i2 i1 i2 i2 i2 i2 i1 i1 i1",
    "best_of": "i0 i1 i1 u1 u0 i1",
    "top_of": "i0 i1 i1 u1 u0 i1 i1",
    "tally_of": "i0 i1 i1",
    "weigh": "i0 i1 i1 i2 i1 i2 i2 i1 i2 i2 i2 i0 i2 i1 f1 i1 i1 f1 i1 i1 i1",
    "place_run": "i0 i0 i0 i1 i2 i2 f2 i2 i1 i2 i1 i2 i2 i2 i2 i1 i2 i1 i2 i2 i1 "
    "i2 b2 i2 i2 i0 i2 i1 f1 u1 u0 i1 i1 i1 f1 i1 i1 i1 i1 i1 i1 i1",
    "place_many": (
        "i0 i0 i0 i2 i1 i2 i2 f2 i2 i2 i1 i3 i2 i3 i3 i2 i2 i1 u1 u1 i1 i1 i1 i1 i0 i1 i1 i1 i1 "
        "i2 i2 i2"
    ),
}
"""The functions that other modules call, with the types of their arguments
(`engine.machine_code`)."""


def share(strategy, asked, whole, shape):
    """Returns the score 0..100 of one resource on one node.

    - `strategy`: kube-scheduler's scoring strategy. `LEAST` scores the free share in percent,
      `MOST` the used share in percent, `RATIO` interpolates linearly between the points of `shape`.
    - `asked`: used amount, with the new pod included.
    - `whole`: allocatable amount of the node, above 0.
    - `shape` [points, 2]: points (used share in percent, score), by ascending used share; only for
      `RATIO`.

    Example: 1000 of 4000 milli-CPU used scores 75 with `LEAST` and 25 with `MOST`. With `RATIO` and
    the points (0, 0) and (100, 50) it scores 12 (12.5 truncated).
    """
    if strategy == LEAST:
        return 0 if asked > whole else (whole - asked) * 100 // whole
    if strategy == MOST:
        return min(asked, whole) * 100 // whole
    used = 100 if asked > whole else asked * 100 // whole
    for i in range(len(shape)):
        if used <= shape[i, 0]:
            if i == 0:
                return shape[0, 1]
            rise = (shape[i, 1] - shape[i - 1, 1]) * (used - shape[i - 1, 0])
            run = shape[i, 0] - shape[i - 1, 0]
            # Truncated towards zero, as integer division in Go.
            return shape[i - 1, 1] + (rise // run if rise >= 0 else -(-rise // run))
    return shape[len(shape) - 1, 1]


def local_score(n, free, alloc, held, plus, form, fit, balance, shape, load, per):
    """Returns the part of the score of node `n` that can be computed from this node alone, without
    any other node.

    It is `plus[n]` plus the weighted sum of three scores, 0 to 100 each:

    - Resource fit: the weighted mean of the scores of single resources (`share`: for example the
      free share in percent). With the scoring strategy `RATIO` (RequestedToCapacityRatio),
      resources that score 0 are left out and the mean is rounded. Otherwise the mean is truncated.
    - Balance: (1 - standard deviation of the used fractions of the resources) * 100. If `form[3]`
      is 1, the score is 50 + (50 + a - b) / 2 instead, where a is this balance with the new pod and
      b without it.
    - Measured load: free share in percent - 10 * hot value, limited to 0..100.

    Example of the balance: with the pod, cpu is 50 % and memory 30 % used. The deviation is 0.1 and
    the score 90.

    Arguments (N: number of slots, the array positions of nodes):

    - `free`, `alloc` [resources, N]: free and allocatable amounts of each node.
    - `held` [2, N]: requested cpu and memory of the pods on each node; a pod without a request
      counts with a default request.
    - `plus` [N]: the part of the score that does not depend on usage, such as image locality.
    - `form` [9]: scoring strategy, weights and flags of the score formula.
    - `fit` [rows, 4], `balance` [rows, 2]: one row per resource of the fit score and of the balance
      score, with weights and requests.
    - `shape` [points, 2]: (used share in percent, score) for `RATIO`.
    - `load` [2 + windows, N]: measured free share in percent, replicas placed in this batch, recent
      placements within each hot window (a period of the load policy). `per` [windows]: placements
      that add 1 to the hot value.

    The docstring of the module lists the columns of each array.
    """
    total = plus[n]
    if form[1] != 0:
        summed, weights = 0, 0
        for i in range(len(fit)):
            whole = alloc[fit[i, 1], n]
            if whole == 0:
                continue
            asked = fit[i, 3] + (
                held[fit[i, 1], n] if fit[i, 0] == 0 else whole - free[fit[i, 1], n]
            )
            part = share(form[0], asked, whole, shape)
            if form[0] == RATIO and part <= 0:
                continue
            summed += part * fit[i, 2]
            weights += fit[i, 2]
        if weights > 0:
            # With RATIO the mean is rounded, halves up; otherwise it is truncated.
            total += form[1] * (
                (2 * summed + weights) // (2 * weights) if form[0] == RATIO else summed // weights
            )
    if form[2] != 0:
        score = 0
        before = 0
        for asking in range(2):
            if asking == 0 and form[3] == 0:
                continue
            count = 0
            first = 0.0
            second = 0.0
            summed_f = 0.0
            for i in range(len(balance)):
                whole = alloc[balance[i, 0], n]
                if whole == 0:
                    continue
                asked = whole - free[balance[i, 0], n] + asking * balance[i, 1]
                fraction = min(1.0, asked / whole)
                second = fraction if count == 1 else second
                first = fraction if count == 0 else first
                summed_f += fraction
                count += 1
            deviation = 0.0
            if count == 2:
                deviation = abs((first - second) / 2)
            elif count > 2:
                mean = summed_f / count
                squares = 0.0
                for i in range(len(balance)):
                    whole = alloc[balance[i, 0], n]
                    if whole == 0:
                        continue
                    asked = whole - free[balance[i, 0], n] + asking * balance[i, 1]
                    away = min(1.0, asked / whole) - mean
                    squares += away * away
                deviation = np.sqrt(squares / count)
            score = int((1 - deviation) * 100)
            if asking == 0:
                before = score
        if form[3] != 0:
            score = 50 + (50 + score - before) // 2
        total += form[2] * score
    if form[7] != 0:
        hot = 0
        for w in range(len(per)):
            hot += max(load[2 + w, n] + load[1, n], 0) // per[w]
        total += form[8] * max(0, min(SCORE_MAX, load[0, n] - HOT_COST * hot))
    return total


def judge_one(
    n, static, free, alloc, held, plus, asks, form, fit, balance, shape, load, per, verdicts, scores
):
    """Filters and scores node `n` by its own state. Writes `verdicts[n]` (0: feasible, otherwise
    why the node is refused), and for a feasible node `scores[n]`.

    The causes of a refusal are `static[n]` and one verdict for each resource of which the node has
    too little free. If there are several causes, the smallest number is written, because the filter
    that comes first in the profile has the smallest number. The score is that of `local_score`:
    resource fit, balance and measured load.

    Arguments (N: number of slots, the array positions of nodes):

    - `static` [N]: verdict of each node by all that does not depend on usage; 0: not refused.
    - `free`, `alloc` [resources, N]: free and allocatable amounts of each node.
    - `held` [2, N]: requested cpu and memory of the pods on each node; a pod without a request
      counts with a default request.
    - `plus` [N]: the part of the score that does not depend on usage.
    - `asks` [rows, 3]: the requests of the pod: (row of `free`, amount, verdict of a node that has
      less free; 0: not checked).
    - `form` [9]: scoring strategy, weights and flags of the score formula.
    - `fit` [rows, 4], `balance` [rows, 2]: the resources of the fit score and of the balance score.
    - `shape` [points, 2]: (used share in percent, score) of RequestedToCapacityRatio.
    - `load` [2 + windows, N]: measured free share in percent, replicas placed in this batch, recent
      placements within each hot window (a period of the load policy). `per` [windows]: placements
      that add 1 to the hot value.
    - `verdicts`, `scores` [N]: output.

    The docstring of the module lists the columns of each array.
    """
    verdict = static[n]
    for i in range(len(asks)):
        if (
            asks[i, 2] != 0
            and free[asks[i, 0], n] < asks[i, 1]
            and (verdict == 0 or asks[i, 2] < verdict)
        ):
            verdict = asks[i, 2]
    verdicts[n] = verdict
    if verdict == 0:
        scores[n] = local_score(n, free, alloc, held, plus, form, fit, balance, shape, load, per)


def whole_part(dividend, divisor, inverse):
    """Returns floor(dividend / divisor) of two whole numbers in doubles, without a division.
    `inverse`: 1 / divisor. The product with the inverse is off by at most one; the remainder is
    exact, and its sign and size correct the result."""
    quotient = np.floor(dividend * inverse)
    rest = dividend - quotient * divisor
    return quotient + (1.0 if rest >= divisor else 0.0) - (1.0 if rest < 0.0 else 0.0)


def judge_quick(size, free, alloc, inverse, held, plus, cpu, memory, form, fit, scores):
    """Computes the score of every slot (array position of a node) from cpu and memory: the weighted
    sum of the fit score and the balance score, plus `plus`. Writes it into `scores`, also for nodes
    that are not feasible. It is used for profiles whose fit and balance scores use only cpu and
    memory.

    The result equals that of `local_score` without measured load. The loop has no branches, so that
    the compiler can vectorise it.

    - `size`: number of slots in use. N: number of all slots.
    - `free`, `alloc` [resources, N]: free and allocatable amounts; row 0 is cpu, row 1 is memory.
    - `inverse` float64[2, N]: 1 / allocatable cpu and 1 / allocatable memory of each node.
    - `held` [2, N]: requested cpu and memory of the pods on each node; a pod without a request
      counts with a default request.
    - `plus` [N]: the part of the score that does not depend on usage.
    - `cpu`, `memory`: requests of the pod for the balance score.
    - `form` [9]: scoring strategy, weights and flags of the score formula, and the requests for the
      fit score.
    - `fit` [2, 4]: column 2 has the weights of cpu and memory in the fit score.
    - `scores` [N]: output.

    The docstring of the module lists the columns of each array.
    """
    weight_cpu, weight_memory = fit[0, 2], fit[1, 2]
    scored_cpu, scored_memory = form[5], form[6]
    weights = float(weight_cpu + weight_memory)
    part = 1.0 / weights
    least = form[0] == LEAST
    for n in range(size):
        # A slot without a node has amounts of 0; its score is never read.
        whole_cpu, whole_memory = float(max(alloc[0, n], 1)), float(max(alloc[1, n], 1))
        asked_cpu, asked_memory = float(held[0, n] + scored_cpu), float(held[1, n] + scored_memory)
        left_cpu, left_memory = (
            max(whole_cpu - asked_cpu, 0.0),
            max(whole_memory - asked_memory, 0.0),
        )
        if not least:
            left_cpu, left_memory = whole_cpu - left_cpu, whole_memory - left_memory
        parts = (
            whole_part(left_cpu * 100.0, whole_cpu, inverse[0, n]) * weight_cpu
            + whole_part(left_memory * 100.0, whole_memory, inverse[1, n]) * weight_memory
        )
        total = whole_part(parts, weights, part) * form[1]
        # The last bit of the deviation matters, so these quotients are computed by division.
        of_cpu = min(1.0, (whole_cpu - float(free[0, n]) + cpu) / whole_cpu)
        of_memory = min(1.0, (whole_memory - float(free[1, n]) + memory) / whole_memory)
        total += np.floor((1.0 - abs((of_cpu - of_memory) / 2.0)) * 100.0) * form[2]
        scores[n] = int(total) + plus[n]


def judge(
    size,
    static,
    free,
    alloc,
    inverse,
    held,
    plus,
    asks,
    form,
    fit,
    balance,
    shape,
    load,
    per,
    verdicts,
    scores,
):
    """Filters and scores all nodes, each by its own state. Writes for every slot (array position of
    a node) the verdict (0: feasible, otherwise why the node is refused) and the score.

    The result equals that of `judge_one` for each slot. If `form[4]` is 1 (only cpu and memory are
    scored), faster vectorised loops compute the same; then infeasible slots also get a score, which
    has no meaning.

    - `size`: number of slots in use. N: number of all slots.
    - `static` [N]: verdict of each node by all that does not depend on usage; 0: not refused.
    - `free`, `alloc` [resources, N]: free and allocatable amounts of each node.
    - `inverse` float64[2, N]: 1 / allocatable cpu and 1 / allocatable memory of each node.
    - `held` [2, N]: requested cpu and memory of the pods on each node; a pod without a request
      counts with a default request.
    - `plus` [N]: the part of the score that does not depend on usage.
    - `asks` [rows, 3]: the requests of the pod: (row of `free`, amount, verdict of a node that has
      less free; 0: not checked).
    - `form` [9]: scoring strategy, weights and flags of the score formula.
    - `fit` [rows, 4], `balance` [rows, 2]: the resources of the fit score and of the balance score.
    - `shape` [points, 2]: (used share in percent, score) of RequestedToCapacityRatio.
    - `load` [2 + windows, N]: measured free share in percent, replicas placed in this batch, recent
      placements within each hot window (a period of the load policy). `per` [windows]: placements
      that add 1 to the hot value.
    - `verdicts`, `scores` [N]: output.

    The docstring of the module lists the columns of each array.
    """
    if form[4] != 0:
        judge_quick(
            size, free, alloc, inverse, held, plus, balance[0, 1], balance[1, 1], form, fit, scores
        )
        if form[7] != 0:
            for n in range(size):
                hot = 0
                for w in range(len(per)):
                    hot += max(load[2 + w, n] + load[1, n], 0) // per[w]
                scores[n] += form[8] * max(0, min(SCORE_MAX, load[0, n] - HOT_COST * hot))
        for n in range(size):
            verdicts[n] = static[n]
        for i in range(len(asks)):
            row, amount, short = asks[i, 0], asks[i, 1], asks[i, 2]
            if short == 0:
                continue
            for n in range(size):
                verdict = verdicts[n]
                worse = free[row, n] < amount and (verdict == 0 or short < verdict)
                verdicts[n] = short if worse else verdict
        return
    for n in range(size):
        judge_one(
            n,
            static,
            free,
            alloc,
            held,
            plus,
            asks,
            form,
            fit,
            balance,
            shape,
            load,
            per,
            verdicts,
            scores,
        )


def better(a, b, scores, hashes, seed, ranks):
    """Returns whether slot `a` ranks before slot `b`. Compares the scores, then the hashes of the
    node names (xor the seed of the class), then the names; the higher value ranks first."""
    if scores[a] != scores[b]:
        return scores[a] > scores[b]
    mixed_a, mixed_b = hashes[a] ^ seed, hashes[b] ^ seed
    return mixed_a > mixed_b if mixed_a != mixed_b else ranks[a] > ranks[b]


def best_of(size, verdicts, scores, hashes, seed, ranks):
    """Returns the feasible slot (array position of a node) with the highest score; -1: no slot is
    feasible. Among equal scores the highest hash of the node name (xor `seed`) wins. Among equal
    hashes the name that is last in alphabetical order wins.

    - `size`: number of slots in use. N: number of all slots.
    - `verdicts`, `scores` [N]: verdict (0: feasible) and score of each slot.
    - `hashes` uint64[N]: hash of each node name. `seed` uint64: a number that differs between
      classes of pods. `ranks` [N]: position of each node in the order of names.

    Example: the scores 80, 90, 90 with verdicts 0, 0, 5 give slot 1, because slot 2 is refused.
    """
    top = -1
    for n in range(size):
        top = max(top, scores[n] if verdicts[n] == 0 else -1)
    best = -1
    if top < 0:
        return best
    for n in range(size):
        if (
            scores[n] == top
            and verdicts[n] == 0
            and (best < 0 or better(n, best, scores, hashes, seed, ranks))
        ):
            best = n
    return best


def top_of(size, verdicts, scores, hashes, seed, ranks, top):
    """Selects the feasible slots (array positions of nodes) with the highest scores: at most
    len(`top`). Writes them into `top`, best first, and returns how many were selected. The rest of
    `top` is not changed. Among equal scores the order is that of `best_of`: highest hash of the
    node name first.

    - `size`: number of slots in use. N: number of all slots.
    - `verdicts`, `scores` [N]: verdict (0: feasible) and score of each slot.
    - `hashes` uint64[N]: hash of each node name. `seed` uint64: a number that differs between
      classes of pods. `ranks` [N]: position of each node in the order of names.
    - `top` [k]: output.

    Example: the scores 70, 90, 80, all feasible, and `top` of length 2 give 2 slots: 1, 2.
    """
    found = 0
    least = -1
    for n in range(size):
        if verdicts[n] != 0 or scores[n] < least:
            continue
        if found == len(top) and not better(n, top[found - 1], scores, hashes, seed, ranks):
            continue
        found = min(found + 1, len(top))
        at = found - 1
        while at > 0 and better(n, top[at - 1], scores, hashes, seed, ranks):
            top[at] = top[at - 1]
            at -= 1
        top[at] = n
        if found == len(top):
            least = scores[top[found - 1]]
    return found


def tally_of(size, verdicts, tally):
    """Counts the slots (array positions of nodes) by the reason why the node is refused: adds to
    `tally[d]` the number of slots whose reason has the number d, and to `tally[0]` the number of
    feasible slots.

    The number of the reason is the verdict modulo len(`tally`), which is a power of two. A block of
    `STRETCH` slots that are all feasible is counted in one step.

    - `size`: number of slots in use. N: number of all slots.
    - `verdicts` [N]: verdict of each slot, 0: feasible.
    - `tally` [reasons]: output, one counter per reason; the caller sets it to 0 before.

    Example: with 64 reasons the verdicts 0, 67, 131, 3 give `tally[0]` = 1 and `tally[3]` = 3.
    """
    for first in range(0, size, STRETCH):
        last = min(first + STRETCH, size)
        against = 0
        for n in range(np.uint64(first), np.uint64(last)):
            # An unsigned index needs no check for a negative one.
            against |= verdicts[n]
        if against == 0:
            tally[0] += last - first
            continue
        for n in range(first, last):
            tally[verdicts[n] & (len(tally) - 1)] += 1


def apply(n, free, held, load, asks, form):
    """Charges one replica to node `n`: updates the free amounts, the scored amounts, and the number
    of replicas placed in this batch."""
    for i in range(len(asks)):
        free[asks[i, 0], n] -= asks[i, 1]
    held[0, n] += form[5]
    held[1, n] += form[6]
    load[1, n] += 1


def domains_of(hard, counts, lows):
    """Computes for each hard topology spread constraint the number of matching pods in the domain
    (such as a zone) that has the fewest. This is the minimum from which skew is measured. Writes it
    into `lows` [constraints]; 0 if there are fewer domains than minDomains.

    `hard` [constraints, 9]: the constraints; columns 1, 2 and 5 are the start of the counters of
    the constraint in `counts`, the number of these counters, and minDomains. `counts`: number of
    matching pods by domain; a counter below 0 belongs to a domain that does not count for the
    constraint.

    Example: the counters 4, 2, -1, 3 give 2, or 0 if minDomains is 4.
    """
    for h in range(len(hard)):
        low = -1
        domains = 0
        for d in range(hard[h, 1], hard[h, 1] + hard[h, 2]):
            if counts[d] >= 0:
                domains += 1
                if low < 0 or counts[d] < low:
                    low = counts[d]
        lows[h] = low if domains >= hard[h, 5] and low >= 0 else 0


def refuse(size, codes, counts, blocks, joins, joined, hard, lows, verdicts):
    """Filters all nodes by anti-affinity, host ports, affinity and hard topology spread of the
    class. Where a constraint refuses a node, writes the verdict of the constraint into `verdicts`,
    unless a smaller verdict above 0 (from an earlier filter of the profile) is there.

    A domain is one value of a topology key, such as one zone. N: number of slots (array positions
    of nodes), of which the first `size` are used.

    - `codes` [keys, N]: domain of each node by topology key, -1: the node lacks the label.
    - `counts`: number of pods by domain. Each constraint has its own range of counters for the pods
      that it selects.
    - `blocks` [rows, 4]: anti-affinity and host ports. A node is refused if the counter of its
      domain is above 0.
    - `joins` [rows, 3], `joined` [4]: affinity. A node is refused if it lacks the label or if the
      counter of its domain is 0. Exception: if no existing pod matches in the whole cluster and the
      new pod matches its own terms, all nodes with the labels are allowed.
    - `hard` [rows, 9]: hard topology spread. A node is refused if it lacks the label, or if
      (counter of its domain + 1 - smallest counter of any domain) is above maxSkew. The 1 is left
      out if the new pod does not match its own selector.
    - `lows`: smallest counter of any domain, for each row of `hard`.
    - `verdicts` [N]: changed in place; 0: the node is feasible.

    Example: a hard spread over 3 zones with 4, 2 and 2 pods and maxSkew 1 refuses the first zone (4
    + 1 - 2 = 3), and allows the other zones (2 + 1 - 2 = 1).

    Each constraint is one loop over all nodes without branches, for speed. For a node without the
    label the loop reads the first counter of the range and ignores it. The docstring of the module
    lists the columns of each array.
    """
    for b in range(len(blocks)):
        key, base, verdict = blocks[b, 0], blocks[b, 1], blocks[b, 3]
        for n in range(size):
            code = n if key < 0 else codes[max(key, 0), n]
            before = verdicts[n]
            against = (
                (code >= 0)
                & (counts[base + max(code, 0)] > 0)
                & ((before == 0) | (verdict < before))
            )
            verdicts[n] = verdict if against else before
    # The first pod of a group with affinity to itself may go to any node with the labels.
    first = len(joins) > 0 and joined[0] == 0 and joined[1] != 0
    for j in range(len(joins)):
        key, base, verdict = joins[j, 0], joins[j, 1], joined[2]
        for n in range(size):
            code = codes[key, n]
            before = verdicts[n]
            there = (code >= 0) & (first | (counts[base + max(code, 0)] > 0))
            verdicts[n] = before if there | ((before != 0) & (before <= verdict)) else verdict
    # If several constraints fail, the first is reported, so the loop begins with the last.
    for h in range(len(hard) - 1, -1, -1):
        key, base, most = hard[h, 0], hard[h, 1], hard[h, 3] + lows[h] - hard[h, 4]
        missing, skewed = hard[h, 6], hard[h, 7]
        for n in range(size):
            code = codes[key, n]
            before = verdicts[n]
            verdict = missing if code < 0 else skewed
            fails = (code < 0) | (max(counts[base + max(code, 0)], 0) > most)
            counts_for = (
                (before == 0) | (verdict < before) | (before == missing) | (before == skewed)
            )
            verdicts[n] = verdict if fails & counts_for else before


def weigh_facts(size, verdicts, raws, weights, scores):
    """Adds two weighted scores to `scores`: one for PreferNoSchedule taints and one for preferred
    node affinity.

    Both raw numbers of each feasible node are scaled to 0..100: 100 * raw / highest, truncated.
    Highest is taken over the feasible nodes, for taints and for affinity separately. For taints the
    scale is reversed: no taint scores 100. If both highest numbers are 0, every node gets 100 for
    taints and 0 for affinity.

    - `size`: number of slots (array positions of nodes) in use. N: number of all slots.
    - `verdicts` [N]: 0: the node is feasible.
    - `raws` [2, N]: row 0: number of PreferNoSchedule taints that the pod does not tolerate; row 1:
      sum of the weights of the node preferences that match.
    - `weights`: weight of the taint score at index 0, of the affinity score at index 1.
    - `scores` [N]: changed in place.

    Example: nodes with 0, 1 and 2 taints that are not tolerated score 100, 50 and 0 for taints.
    """
    top_0, top_1 = 0, 0
    for n in range(size):
        top_0 = max(top_0, raws[0, n] if verdicts[n] == 0 else 0)
        top_1 = max(top_1, raws[1, n] if verdicts[n] == 0 else 0)
    if top_0 == 0 and top_1 == 0:
        for n in range(size):
            scores[n] += weights[0] * 100
        return
    for n in range(size):
        if verdicts[n] == 0:
            borne = 100 if top_0 == 0 else 100 - 100 * raws[0, n] // top_0
            liked = 0 if top_1 == 0 else 100 * raws[1, n] // top_1
            scores[n] += weights[0] * borne + weights[1] * liked


def weigh_likes(size, verdicts, codes, counts, likes, weight, raw, scores):
    """Adds the weighted score of inter-pod affinity preferences to every node, by min-max
    normalisation: 100 * (raw - lowest) / (highest - lowest), truncated.

    The raw score of a node is the sum of the counters of its domains (a domain is one value of a
    topology key, such as one zone). A counter is the number of matching pods times the weight of
    the preference; anti-affinity has negative weights. Lowest and highest are taken over the
    feasible nodes. If they are equal, nothing is added.

    - `size`: number of slots (array positions of nodes) in use. N: number of all slots.
    - `verdicts` [N]: 0: the node is feasible.
    - `codes` [keys, N]: domain of each node by topology key, -1: the node lacks the label.
    - `counts`: the counters by domain; each preference has its own range.
    - `likes` [rows, 3]: the preferences: (row of `codes`, start of the range in `counts`, what one
      pod of the class adds to a counter).
    - `weight`: weight of the score in the profile.
    - `raw` [N]: work array.
    - `scores` [N]: changed in place.

    Example: the raw scores -10, 0 and 30 give 0, 25 and 100.
    """
    for n in range(size):
        raw[n] = 0
    for k in range(len(likes)):
        key, base = likes[k, 0], likes[k, 1]
        for n in range(size):
            code = codes[key, n]
            here = counts[base + max(code, 0)]
            raw[n] += here if code >= 0 else 0
    low, high = FAR, -FAR
    for n in range(size):
        low = min(low, raw[n] if verdicts[n] == 0 else FAR)
        high = max(high, raw[n] if verdicts[n] == 0 else -FAR)
    if high == low:
        return
    span = float(high - low)
    for n in range(size):
        scores[n] += weight * int(100.0 * (float(raw[n] - low) / span))


def weigh_spread(
    size, verdicts, codes, counts, soft, needs_all, weight, logs, seen, sums, raw, scores
):
    """Adds the weighted score of soft topology spread to every node that is scored, as
    kube-scheduler's PodTopologySpread computes it: 100 * (highest + lowest - raw) / highest,
    truncated. If the highest raw score is 0, every node scores 100.

    The raw score of a node is rounded from the sum over the constraints of p * ln(d + 2) + maxSkew
    - 1. Here p is the number of matching pods in the domain of the node (such as its zone), and d
    is the number of domains. Fewer pods are better. Infeasible nodes are not scored.

    Returns 0. Returns -k-1 if `logs` lacks the logarithm for k domains; then the caller adds it and
    calls again.

    - `size`: number of slots (array positions of nodes) in use. N: number of all slots.
    - `verdicts` [N]: 0: the node is feasible.
    - `codes` [keys, N]: domain of each node by topology key, -1: the node lacks the label.
    - `counts`: number of matching pods by domain; each constraint has its own range.
    - `soft` [rows, 6]: the constraints; the docstring of the module lists the columns.
    - `needs_all`: 1: a node that lacks the label of any constraint is not scored.
    - `weight`: weight of the score in the profile.
    - `logs` float64: element k is ln(k + 2), or 0 if it is not computed yet.
    - `seen` [domains + 1], `raw` [N], `sums` float64[N]: work arrays.
    - `scores` [N]: changed in place.

    Example: the raw scores 2 and 4 give 100 * (4 + 2 - 2) / 4 = 100 and 50.
    """
    for n in range(size):
        sums[n] = 0.0 if verdicts[n] == 0 else -1.0
    if needs_all != 0:
        for s in range(len(soft)):
            for n in range(size):
                sums[n] = -1.0 if codes[soft[s, 0], n] < 0 else sums[n]
    for s in range(len(soft)):
        key, base, room, slack = soft[s, 0], soft[s, 1], soft[s, 2], float(soft[s, 3] - 1)
        domains = 0
        if soft[s, 5] != 0:
            for n in range(size):
                domains += 1 if sums[n] >= 0.0 else 0
        else:
            for d in range(room + 1):
                seen[d] = 0
            for n in range(size):
                if sums[n] >= 0.0:
                    code = codes[key, n]
                    seen[code if code >= 0 else room] = 1
            for d in range(room + 1):
                domains += seen[d]
        if domains >= len(logs) or logs[domains] == 0.0:
            return -domains - 1
        per = logs[domains]
        for n in range(size):
            code = codes[key, n]
            if code >= 0 and sums[n] >= 0.0:
                there = counts[base + n] if soft[s, 5] != 0 else counts[base + code]
                sums[n] += there * per + slack
    low, high = -1, 0
    for n in range(size):
        if sums[n] >= 0.0:
            whole = int(sums[n])
            if sums[n] - whole >= 0.5:
                whole += 1
            raw[n] = whole
            low = whole if low < 0 else min(low, whole)
            high = max(high, whole)
    for n in range(size):
        if sums[n] >= 0.0:
            scores[n] += weight * (100 if high == 0 else 100 * (high + low - raw[n]) // high)
    return 0


def weigh(
    size,
    local_verdicts,
    local_scores,
    codes,
    counts,
    blocks,
    joins,
    joined,
    hard,
    likes,
    soft,
    needs_all,
    raws,
    weights,
    logs,
    lows,
    seen,
    sums,
    raw,
    verdicts,
    scores,
):
    """Computes the final verdict and total score of every slot (array position of a node). Adds to
    the results of `judge` the filters and scores that depend on other pods or on other nodes:
    affinity, topology spread, and normalised scores.

    Returns the number of feasible slots. Returns -k-1 if `logs` lacks the logarithm for k domains;
    then the caller adds it and calls again. Scores of infeasible slots have no meaning.

    A domain is one value of a topology key, such as one zone.

    - `size`: number of slots in use. N: number of all slots.
    - `local_verdicts`, `local_scores` [N]: results of `judge`, computed from each node alone.
    - `codes` [keys, N]: domain of each node by topology key, -1: the node lacks the label.
    - `counts`: number of pods by domain; each constraint has its own range.
    - `blocks`, `joins`, `joined`, `hard`: constraints that refuse nodes: anti-affinity and host
      ports; affinity (two arrays); hard topology spread.
    - `likes`, `soft`: constraints that are scored: preferred inter-pod affinity; soft topology
      spread.
    - `needs_all`: 1: a node that lacks the label of any soft constraint gets no spread score.
    - `raws` [2, N]: number of PreferNoSchedule taints that the pod does not tolerate; sum of the
      weights of matching node preferences.
    - `weights` [4]: weights of the scores of taints, node affinity, topology spread and inter-pod
      affinity.
    - `logs` float64: element k is ln(k + 2), or 0 if it is not computed yet.
    - `lows`, `seen`, `raw` [N], `sums` float64[N]: work arrays.
    - `verdicts`, `scores` [N]: output; verdict 0: the node is feasible.

    The docstring of the module lists the columns of each array.
    """
    domains_of(hard, counts, lows)
    for n in range(size):
        verdicts[n] = local_verdicts[n]
        scores[n] = local_scores[n]
    refuse(size, codes, counts, blocks, joins, joined, hard, lows, verdicts)
    found = 0
    for n in range(size):
        found += 1 if verdicts[n] == 0 else 0
    if found == 0:
        return 0
    if weights[0] != 0 or weights[1] != 0:
        weigh_facts(size, verdicts, raws, weights, scores)
    if weights[3] != 0 and len(likes) > 0:
        weigh_likes(size, verdicts, codes, counts, likes, weights[3], raw, scores)
    if weights[2] != 0 and len(soft) > 0:
        missing = weigh_spread(
            size,
            verdicts,
            codes,
            counts,
            soft,
            needs_all,
            weights[2],
            logs,
            seen,
            sums,
            raw,
            scores,
        )
        if missing < 0:
            return missing
    return found


def place_run(
    count,
    done,
    size,
    static,
    free,
    alloc,
    inverse,
    held,
    plus,
    asks,
    form,
    fit,
    balance,
    shape,
    load,
    per,
    codes,
    counts,
    blocks,
    joins,
    joined,
    hard,
    admits,
    likes,
    soft,
    needs_all,
    raws,
    weights,
    logs,
    hashes,
    seed,
    ranks,
    lows,
    seen,
    sums,
    raw,
    local_verdicts,
    local_scores,
    verdicts,
    scores,
    nodes,
    totals,
):
    """Places up to `count` equal pods one after another, each on the node with the highest score at
    that time. Stops when no node is feasible. It is for classes whose pods influence each other by
    affinity or topology spread: each placed pod is added to `counts` before the next pod is placed.

    Returns the number of placed pods, including `done`. If `logs` lacks the logarithm for k
    domains, it returns -k-1 and writes the number of placed pods into `joined[3]`. Then the caller
    adds the logarithm and calls again with that number as `done`.

    A domain is one value of a topology key, such as one zone. N: number of slots (array positions
    of nodes).

    - `done`: how many of the `count` pods were placed by earlier calls. If it is above 0, the work
      arrays are those of the last of these calls.
    - `size`: number of slots in use.
    - `static` [N]: verdict of each node by all that does not depend on usage; 0: not refused.
    - `free`, `alloc` [resources, N]: free and allocatable amounts; each placed pod lowers `free`.
    - `inverse` float64[2, N]: 1 / allocatable cpu and 1 / allocatable memory.
    - `held` [2, N]: requested cpu and memory of the pods on each node; changed in place.
    - `plus` [N]: the part of the score that does not depend on usage.
    - `asks`, `form`, `fit`, `balance`, `shape`: requests and score formula of the class.
    - `load` [2 + windows, N], `per`: measured load and recent placements; `load` is changed in
      place.
    - `codes` [keys, N]: domain of each node. `counts`: number of pods by domain; changed in place.
    - `blocks`, `joins`, `joined`, `hard`: anti-affinity and host ports; affinity (two arrays,
      `joined` is changed in place); hard topology spread.
    - `admits` int8[constraints, N]: 1 where a spread constraint counts the pods on the node; hard
      constraints first, then soft ones.
    - `likes`, `soft`, `needs_all`: preferred inter-pod affinity; soft topology spread; 1: a node
      that lacks the label of any soft constraint gets no spread score.
    - `raws` [2, N], `weights` [4]: raw scores of taints and node affinity; weights of the scores.
    - `logs` float64: element k is ln(k + 2), or 0 if it is not computed yet.
    - `hashes` uint64[N], `seed`, `ranks` [N]: break ties: the highest hash of the node name xor
      `seed` first, then the name that is last in alphabetical order.
    - `lows`, `seen`, `sums`, `raw`, `local_verdicts`, `local_scores`, `verdicts`, `scores`: work
      arrays.
    - `nodes`, `totals` [count]: output: slot of the chosen node and its score, for each pod.

    The docstring of the module lists the columns of each array.
    """
    if done == 0:
        judge(
            size,
            static,
            free,
            alloc,
            inverse,
            held,
            plus,
            asks,
            form,
            fit,
            balance,
            shape,
            load,
            per,
            local_verdicts,
            local_scores,
        )
    while done < count:
        found = weigh(
            size,
            local_verdicts,
            local_scores,
            codes,
            counts,
            blocks,
            joins,
            joined,
            hard,
            likes,
            soft,
            needs_all,
            raws,
            weights,
            logs,
            lows,
            seen,
            sums,
            raw,
            verdicts,
            scores,
        )
        if found < 0:
            joined[3] = done
            return found
        best = best_of(size, verdicts, scores, hashes, seed, ranks)
        if best < 0:
            break
        nodes[done] = best
        totals[done] = scores[best]
        done += 1
        apply(best, free, held, load, asks, form)
        judge_one(
            best,
            static,
            free,
            alloc,
            held,
            plus,
            asks,
            form,
            fit,
            balance,
            shape,
            load,
            per,
            local_verdicts,
            local_scores,
        )
        for b in range(len(blocks)):
            code = best if blocks[b, 0] < 0 else codes[blocks[b, 0], best]
            if code >= 0:
                counts[blocks[b, 1] + code] += blocks[b, 2]
        for j in range(len(joins)):
            code = codes[joins[j, 0], best]
            if code >= 0:
                counts[joins[j, 1] + code] += joins[j, 2]
                joined[0] += joins[j, 2]
        for h in range(len(hard)):
            code = codes[hard[h, 0], best]
            if code >= 0 and admits[h, best] != 0:
                counts[hard[h, 1] + code] += hard[h, 8]
        for k in range(len(likes)):
            code = codes[likes[k, 0], best]
            if code >= 0:
                counts[likes[k, 1] + code] += likes[k, 2]
        for s in range(len(soft)):
            if soft[s, 5] != 0:
                counts[soft[s, 1] + best] += soft[s, 4]
            elif codes[soft[s, 0], best] >= 0 and admits[len(hard) + s, best] != 0:
                counts[soft[s, 1] + codes[soft[s, 0], best]] += soft[s, 4]
    return done


def climb(tree, leaves, n, size, verdicts, scores, hashes, seed, ranks):
    """Updates a tournament tree after the verdict or score of slot `n` (array position of a node)
    changed. The tree has the best feasible slot at its root. Only the elements from the leaf of `n`
    up to the root are computed again, in O(log leaves).

    - `tree` [2 * leaves]: each element holds the best feasible slot of the leaves below it, -1:
      none. Element 1 is the root, the elements 2i and 2i + 1 are the children of i, and element
      `leaves` + n is the leaf of slot n.
    - `leaves`: number of leaves, a power of two. `size`: number of slots in use.
    - `verdicts`, `scores` [N]: verdict (0: feasible) and score of each slot. N: number of all
      slots.
    - `hashes`, `seed`, `ranks`: break ties between equal scores: the highest hash of the node name
      xor `seed` first, then the name that is last in alphabetical order.

    Example: of 4 leaves the slots 0 and 3 have the scores 90 and 80, the root is 0. When the score
    of slot 0 falls to 70, element 4 (leaf), 2 and 1 are computed again, and the root becomes 3.
    """
    at = leaves + n
    tree[at] = n if n < size and verdicts[n] == 0 else -1
    at //= 2
    while at >= 1:
        left, right = tree[2 * at], tree[2 * at + 1]
        if left < 0:
            tree[at] = right
        elif right < 0:
            tree[at] = left
        else:
            tree[at] = left if better(left, right, scores, hashes, seed, ranks) else right
        at //= 2


def place_many(
    first,
    last,
    size,
    statics,
    static_of,
    free,
    alloc,
    inverse,
    held,
    pluses,
    plus_of,
    asks,
    forms,
    fits,
    balances,
    shape,
    load,
    per,
    hashes,
    seeds,
    ranks,
    counts,
    offsets,
    tree,
    leaves,
    verdicts,
    scores,
    nodes,
    totals,
    tops,
    top_scores,
    tallies,
):
    """Places the replicas of the classes `first` to `last` - 1: class by class, one replica after
    another, each on the node with the highest score at that time.

    It is for classes whose filters and scores of a node depend on this node alone: no affinity or
    topology spread, and no score that is normalised over all nodes. Then a placed replica changes
    the verdict and score of one node only. So a tournament tree finds the next best node in O(log
    nodes).

    N: number of slots (array positions of nodes).

    - `size`: number of slots in use.
    - `statics` [rows, N]: verdicts by all that does not depend on usage, 0: not refused. `pluses`
      [rows, N]: parts of the score that do not depend on usage. `static_of`, `plus_of` [classes]:
      the row that each class uses; several classes can use one row.
    - `free`, `alloc` [resources, N]: free and allocatable amounts; each placed replica lowers
      `free`.
    - `inverse` float64[2, N]: 1 / allocatable cpu and 1 / allocatable memory.
    - `held` [2, N]: requested cpu and memory of the pods on each node; changed in place.
    - `load` [2 + windows, N], `per`: measured load and recent placements; `load` is changed in
      place.
    - `asks`, `forms`, `fits`, `balances`: requests and score formulas; the first index is the
      class. `shape` is common to all classes.
    - `hashes` [N], `seeds` [classes], `ranks` [N]: break ties: the highest hash of the node name
      xor seed first, then the name that is last in alphabetical order.
    - `counts` [classes]: number of replicas to place. `offsets` [classes]: where the results of
      each class begin in `nodes` and `totals`.
    - `tree` [2 * leaves]: work array. `leaves`: a power of two, at least `size`.
    - `verdicts`, `scores` [N]: work arrays.
    - `nodes`, `totals`: output: slot of the chosen node and its score, for each replica. If not all
      replicas of a class fit, the slot after the last placed one is -1.
    - `tops`, `top_scores` [classes, k], `tallies` [classes, reasons]: output, only if k > 0: what
      was found before the first replica of each class was placed. These are the k best slots, the
      scores of these slots, and the number of slots by reason of refusal. With fewer than k
      feasible slots the rest of `tops` keeps the -1 of the caller.

    The docstring of the module lists the columns of each array.
    """
    recorded = tops.shape[1] > 0
    for c in range(first, last):
        ask, form, fit, balance = asks[c], forms[c], fits[c], balances[c]
        static, plus, seed = statics[static_of[c]], pluses[plus_of[c]], seeds[c]
        judge(
            size,
            static,
            free,
            alloc,
            inverse,
            held,
            plus,
            ask,
            form,
            fit,
            balance,
            shape,
            load,
            per,
            verdicts,
            scores,
        )
        if recorded:
            found = top_of(size, verdicts, scores, hashes, seed, ranks, tops[c])
            for i in range(found):
                top_scores[c, i] = scores[tops[c, i]]
            tally_of(size, verdicts, tallies[c])
        at, end = offsets[c], offsets[c] + counts[c]
        if counts[c] > 1:
            for n in range(leaves):
                tree[leaves + n] = n if n < size and verdicts[n] == 0 else -1
            for i in range(leaves - 1, 0, -1):
                left, right = tree[2 * i], tree[2 * i + 1]
                if left < 0:
                    tree[i] = right
                elif right < 0:
                    tree[i] = left
                else:
                    tree[i] = left if better(left, right, scores, hashes, seed, ranks) else right
        while at < end:
            if counts[c] > 1:
                best = tree[1]
            elif recorded:
                best = tops[c, 0]
            else:
                best = best_of(size, verdicts, scores, hashes, seed, ranks)
            nodes[at] = best
            if best < 0:
                break
            totals[at] = scores[best]
            at += 1
            apply(best, free, held, load, ask, form)
            if at < end:
                judge_one(
                    best,
                    static,
                    free,
                    alloc,
                    held,
                    plus,
                    ask,
                    form,
                    fit,
                    balance,
                    shape,
                    load,
                    per,
                    verdicts,
                    scores,
                )
                climb(tree, leaves, best, size, verdicts, scores, hashes, seed, ranks)
