"""NumPy versions of some kernels, used where no machine code is available.

An interpreted loop takes about twenty microseconds per node, a NumPy operation a few for all nodes.
Names and results are those of `kernels`; `engine.machine_code` substitutes them there. Only the
fast case is here; the rest is left to the plain function.
"""

# As in `kernels`: the arrays are those.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np

from wharfinger.engine.nodes import kernels
from wharfinger.engine.nodes.kernels import HOT_COST, LEAST, SCORE_MAX

INSTEAD = ("judge", "best_of", "tally_of")
"""The functions below."""


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
    if form[4] == 0:
        kernels.judge(
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
        )
        return
    whole = np.maximum(alloc[:2, :size], 1).astype(np.float64)
    left = np.maximum(whole - (held[:, :size] + form[5:7, None]), 0.0)
    if form[0] != LEAST:
        left = whole - left
    shares = np.floor(left * 100.0 / whole)
    total = (
        np.floor((shares[0] * fit[0, 2] + shares[1] * fit[1, 2]) / float(fit[0, 2] + fit[1, 2]))
        * form[1]
    )
    used = np.minimum(1.0, (whole - free[:2, :size] + balance[:2, 1][:, None]) / whole)
    total += np.floor((1.0 - np.abs((used[0] - used[1]) / 2.0)) * 100.0) * form[2]
    scores[:size] = total.astype(np.int64) + plus[:size]
    if form[7] != 0:
        hot = np.zeros(size, dtype=np.int64)
        for window, count in enumerate(per):
            hot += np.maximum(load[2 + window, :size] + load[1, :size], 0) // count
        scores[:size] += form[8] * np.clip(load[0, :size] - HOT_COST * hot, 0, SCORE_MAX)
    found = static[:size].copy()
    for row, amount, short in asks.tolist():
        if short:
            np.putmask(found, (free[row, :size] < amount) & ((found == 0) | (short < found)), short)
    verdicts[:size] = found


def best_of(size, verdicts, scores, hashes, seed, ranks):
    feasible = np.flatnonzero(verdicts[:size] == 0)
    if not len(feasible):
        return -1
    here = scores[feasible]
    best = feasible[here == here.max()]
    mixed = hashes[best] ^ seed
    best = best[mixed == mixed.max()]
    return int(best[np.argmax(ranks[best])])


def tally_of(size, verdicts, tally):
    tally += np.bincount(verdicts[:size] & (len(tally) - 1), minlength=len(tally))
