"""The loops of trying without nodes: whether all that is on some fits on others, and what covering an amount costs at least.

Plain functions over arrays, which know no names; see `engine.nodes.compiled` for how they become machine code, and
`vectors` for what stands in their place until then. All int64 unless said otherwise; N = slots, R = resources.

- `of` [pods]: row of each pod in `asks` [classes, R] and `groups` [classes]; in the order in which they are placed.
- `allowed` int8[groups, N]: whether facts let the pods of a group onto a node; `open` int8[N]: whether it takes any.
- `free` [R, N]; comes back as it was.
- `weights`, `shifts` [R]: of what is left over, `(left >> shift) * weight` billionths of a dollar.
"""

# What a compiler sees as the type of an array is not what a type checker knows.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

ORDER = ("rest_of", "settle", "cover", "fill", "pack")
"""The functions below, callees first."""

COARSE = 10
"""What is left over is squared in units of 2**10 billionths, so that squares fit."""

REST_MAX = 2**30


def rest_of(n, asks, row, free, weights, shifts):
    """How much would be left over on a node: the sum of the squares of what its resources are worth. Small: it would be
    filled to the edge, and evenly."""
    total = 0
    for r in range(len(weights)):
        if weights[r] != 0:
            left = max(free[r, n] - asks[row, r], 0)
            worth = min(((left >> shifts[r]) * weights[r]) >> COARSE, REST_MAX)
            total += worth * worth
    return total


def settle(size, of, asks, groups, allowed, open, free, weights, shifts, need_all, targets):
    """Gives each pod the node where the least would be left over, the first by slot of equal ones: `targets` [pods], -1 for
    none. `need_all`: stops at the first without. How many have one."""
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
    """`costs` [amounts]: the least that types of capacities `caps` at `prices` [types] cost which together have at least
    so much, for every amount from 0 on."""
    costs[0] = 0
    for v in range(1, len(costs)):
        least = prices[0] + costs[max(v - caps[0], 0)]
        for t in range(1, len(caps)):
            least = min(least, prices[t] + costs[max(v - caps[t], 0)])
        costs[v] = least


def fill(asks, open, size, order, placed):
    """Puts pods that are `open` [pods] into one node of `size` [2] as they come; how many."""
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
    """About what nodes for all pods cost, one after another: each time the type that costs the least for what it takes in.
    `asks` [pods, 2], `worths` [pods], the most worth first; `sizes` [types, 2]. -1: some pod fits no type."""
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
