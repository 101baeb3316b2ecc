"""The inner loops of simulated removal. They test whether all pods of some nodes fit on others, and
compute two estimates of the price of new nodes.

Plain functions over arrays, compiled ahead of time (`engine.machine_code`); `vectors` is the NumPy
fallback. All arrays are int64 unless noted. N: the number of slots (a slot is the position of a
node in the arrays). R: the number of resources. A class is all pods with equal requirements; a
group is all classes that the same nodes admit by their facts (labels, taints, cordons).

- `of` [pods]: row of each pod's class in `asks` [classes, R] and `groups` [classes], in the order
  in which the pods are placed.
- `allowed` int8[groups, N]: 1 where the facts of a node admit the pods of a group. `open` int8[N]:
  1 where a node takes pods at all.
- `free` [R, N]: free amounts of the nodes; restored on return.
- `weights`, `shifts` [R]: an amount is worth `(amount >> shift) * weight` billionths of a dollar an
  hour.
"""

# What a compiler sees as the type of an array is not what a type checker knows.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

ORDER = ("rest_of", "settle", "cover", "fill", "pack")
"""The functions below, callees first."""

SIGNATURES = {
    "settle": "i0 i1 i2 i1 b2 b1 i2 i1 i1 i0 i1",
    "cover": "i1 i1 i1",
    "pack": "i2 i1 i2 i1 i1 i1 i1 i1",
}
"""The functions that are called from outside, with the types of their arguments
(`engine.machine_code`)."""

COARSE = 10
"""Values are divided by 2**COARSE before they are squared, so that the squares fit int64."""

REST_MAX = 2**30


def rest_of(n, asks, row, free, weights, shifts):
    """Computes the best-fit score of a node for a pod: the sum, over all resources, of the squared
    value of the amount that stays free with the pod on the node. A low score means that the node
    would be nearly full.

    The value of an amount is `((amount >> shift) * weight) >> COARSE`, at most REST_MAX, so that
    the squares fit int64. `(amount >> shift) * weight` is in billionths of a dollar an hour.

    - `n`: index of the node in `free`.
    - `asks` [classes, resources]: requests of one pod of each class; `row`: the pod's class.
    - `free` [resources, nodes]: free amounts of the nodes.
    - `weights`, `shifts` [resources]: weight and shift of each resource. A resource of weight 0 is
      left out.

    Example: one resource with weight 2 and shift 0, 4072 free, 1000 requested. 3072 stay free, the
    value is 6144 >> 10 = 6, and the score is 36.
    """
    total = 0
    for r in range(len(weights)):
        if weights[r] != 0:
            left = max(free[r, n] - asks[row, r], 0)
            worth = min(((left >> shifts[r]) * weights[r]) >> COARSE, REST_MAX)
            total += worth * worth
    return total


def settle(size, of, asks, groups, allowed, open, free, weights, shifts, need_all, targets):
    """Places pods on nodes by best fit. Each pod, in the given order, goes to the node with the
    lowest score of those that can take it; of equal nodes, the first. The score is the squared
    value of what stays free with the pod on the node, summed over the resources (`rest_of`).
    Returns the number of pods placed.

    - `size`: the nodes with the indexes 0 to `size` - 1 are searched.
    - `of` [pods]: row of each pod's class, in the order in which the pods are placed.
    - `asks` [classes, resources]: requests of one pod of each class.
    - `groups` [classes]: row of each class in `allowed`.
    - `allowed` int8[groups, nodes]: 1 where the labels, taints and cordons of a node admit the
      pods.
    - `open` int8[nodes]: 1 where a node may receive pods at all.
    - `free` [resources, nodes]: free amounts of the nodes; restored on return.
    - `weights`, `shifts` [resources]: weight and shift of each resource, which determine the value
      of an amount (`rest_of`).
    - `need_all`: 1: stop at the first pod that fits nowhere; 0: go on with the next pod.
    - `targets` [pods]: output; the index of the node on which each pod is placed; -1: none.

    Example: nodes a and b have 4 and 2 cores free. A pod of 2 cores goes to b, where nothing stays
    free.
    """
    placed = 0
    for i in range(len(of)):
        targets[i] = -1
    for i in range(len(of)):
        row = of[i]
        group = groups[row]
        best = -1
        least = 0
        for n in range(size):
            if open[n] == 0 or allowed[group, n] == 0:
                continue
            fits = True
            for r in range(len(weights)):
                if asks[row, r] > 0 and free[r, n] < asks[row, r]:
                    fits = False
                    break
            if not fits:
                continue
            rest = rest_of(n, asks, row, free, weights, shifts)
            if best < 0 or rest < least:
                best = n
                least = rest
        targets[i] = best
        if best >= 0:
            placed += 1
            for r in range(len(weights)):
                free[r, best] -= asks[row, r]
        elif need_all != 0:
            break
    for i in range(len(of)):
        if targets[i] >= 0:
            for r in range(len(weights)):
                free[r, targets[i]] += asks[of[i], r]
    return placed


def cover(caps, prices, costs):
    """Computes for every amount from 0 on the lowest price of instance types that together have at
    least this amount. Any number of machines of each type may be bought. This is the unbounded
    knapsack problem in its covering form, solved by dynamic programming in O(amounts * types).

    - `caps` [types]: amount that one machine of each type has, above 0.
    - `prices` [types]: price of each type.
    - `costs` [amounts]: output; `costs[v]` is the lowest price for the amount `v`.

    Example: two types have the amounts 4 and 1 at the prices 3 and 1. The amount 5 costs 4.
    """
    costs[0] = 0
    for v in range(1, len(costs)):
        least = prices[0] + costs[max(v - caps[0], 0)]
        for t in range(1, len(caps)):
            least = min(least, prices[t] + costs[max(v - caps[t], 0)])
        costs[v] = least


def fill(asks, open, size, order, placed):
    """Fills one node by first fit: goes through the pods in the given order and takes each pod that
    still fits. Returns the number of pods taken.

    - `asks` [pods, 2]: cpu and memory of each pod.
    - `open` [pods]: 1 where a pod still needs a node; other pods are skipped.
    - `size` [2]: cpu and memory of the node, in the units of `asks`.
    - `order`: indices of the pods, in the order in which they are tried.
    - `placed` [pods]: output; 1 where a pod is taken.

    Example: a node has 4 cpu and 4 memory. Pods of (2, 2), (3, 1) and (1, 1) are tried. The first
    and the third are taken.
    """
    cpu, memory = size[0], size[1]
    count = 0
    for i in order:
        placed[i] = 0
        if open[i] != 0 and asks[i, 0] <= cpu and asks[i, 1] <= memory:
            placed[i] = 1
            count += 1
            cpu -= asks[i, 0]
            memory -= asks[i, 1]
    return count


def pack(asks, worths, sizes, prices, order, open, placed, best):
    """Computes an approximate price of new nodes that hold all pods, by a greedy set cover over cpu
    and memory. Returns the total price, or -1 if a pod fits on no instance type.

    Each step tries one node of every instance type, filled with pods that have no node yet
    (`fill`). It buys the type for which price / (sum of the values of the pods taken) is lowest,
    the first on ties. The steps end when all pods have a node.

    - `asks` [pods, 2]: cpu and memory of each pod.
    - `worths` [pods]: value of each pod, above 0.
    - `sizes` [types, 2]: cpu and memory of each type, in the units of `asks`.
    - `prices` [types]: price of each type, in any unit; the result has the same unit.
    - `order`: indices of the pods, highest value first.
    - `open`, `placed`, `best` [pods]: work arrays; their contents on entry do not matter.

    Example: three pods of (2, 2) with value 1; types of (4, 4) at price 3 and (2, 2) at price 2.
    The first step buys the large type (3 / 2 per value), the second the small type (2 / 1). The
    result is 5.
    """
    left = len(asks)
    cost = 0
    for i in order:
        open[i] = 1
    while left > 0:
        chosen, taken, price = -1, 0, 0
        for t in range(len(prices)):
            count = fill(asks, open, sizes[t], order, placed)
            worth = 0
            for i in order:
                worth += worths[i] * placed[i]
            if count == 0:
                continue
            # The price for what it takes in, compared by multiplication.
            if chosen < 0 or prices[t] * taken < price * worth:
                chosen, taken, price = t, worth, prices[t]
                for i in order:
                    best[i] = placed[i]
        if chosen < 0:
            return -1
        cost += price
        for i in order:
            if best[i] != 0:
                open[i] = 0
                left -= 1
    return cost
