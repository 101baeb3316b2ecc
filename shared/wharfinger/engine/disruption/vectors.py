"""NumPy versions of the kernels in `INSTEAD`, used where no machine code is available. They have
the same names and return the same results."""

# As in `kernels`: the arrays are those.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np

from wharfinger.engine.disruption.kernels import COARSE, REST_MAX

INSTEAD = ("settle", "cover")
"""The functions below."""


def settle(size, of, asks, groups, allowed, open, free, weights, shifts, need_all, targets):
    targets[:] = -1
    weighed = np.flatnonzero(weights)
    placed = 0
    for i, row in enumerate(of.tolist()):
        asked = np.flatnonzero(asks[row] > 0)
        fits = (open[:size] != 0) & (allowed[groups[row], :size] != 0)
        for r in asked.tolist():
            fits &= free[r, :size] >= asks[row, r]
        slots = np.flatnonzero(fits)
        if not len(slots):
            if need_all:
                break
            continue
        rest = np.zeros(len(slots), dtype=np.int64)
        for r in weighed.tolist():
            left = np.maximum(free[r, slots] - asks[row, r], 0)
            rest += np.minimum(((left >> shifts[r]) * weights[r]) >> COARSE, REST_MAX) ** 2
        best = slots[np.argmin(rest)]
        targets[i] = best
        placed += 1
        free[:, best] -= asks[row]
    for i in np.flatnonzero(targets >= 0).tolist():
        free[:, targets[i]] += asks[of[i]]
    return placed


def cover(caps, prices, costs):
    costs[0] = 0
    for v in range(1, len(costs)):
        costs[v] = (prices + costs[np.maximum(v - caps, 0)]).min()
