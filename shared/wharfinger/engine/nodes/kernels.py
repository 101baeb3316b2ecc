"""The loops of placing: judge every node for a class, weigh those that are feasible, place one, update, place the next.

Plain functions over arrays, which know no names; `compiled` makes machine code of the very same functions, and until it is there
they are called as they are. So they keep to what both understand: integers, loops, arrays that are given. Nothing here allocates
per node. Where a formula has doubles (balanced allocation, the weight of few domains, spans of scores) they are computed one after
another as the formula has them, so that the last bit is the same everywhere.

Arrays, all int64 unless said otherwise; N = slots, of which the first `size` are looked at; a domain is a code of a topology key:

- `free`, `alloc` [resources, N]: amounts; `inverse` float64[2, N]: of the cpu and memory there is, at least of 1.
- `held` [2, N]: cpu and memory of the pods there as scoring counts them.
- `static` [N]: 0 or an encoded verdict (see `terms`): the smaller, the earlier the plugin stands in the profile.
- `plus` [N]: score that neither usage nor other nodes change.
- `asks` [n, 3]: (row of `free`, amount, encoded verdict when it is short; 0: it is taken, and not asked for).
- `form` [9]: (strategy, weight of the fit, weight of the balance, balance by change, 1: quick, ask of cpu and of memory as scored,
  1: measured load, its weight).
- `fit` [n, 4]: (0: row of `held`, 1: row of `free`; row of `alloc`; weight; ask); `balance` [n, 2]: (row, ask).
- `shape` [points, 2]: utilization, score 0..100, of RequestedToCapacityRatio.
- `load` [2 + windows, N]: base, placed in this batch, recent by window; `per` [windows].

`quick` says: cpu and memory alone decide score and balance, every node has both, and no amount is so large that a product with 100
would not be exact in a double. Such passes are vectors to the compiler; the result is the same.
"""

# What a compiler sees as the type of an array is not what a type checker knows.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np

LEAST, MOST, RATIO = 1, 2, 3

QUICK_MAX = 2**46
"""100 times this is exact in a double, and so is the integer part of a quotient of two such."""

FAR = 2**62
"""Beyond any raw score."""

STRETCH = 64
"""So many slots are looked at together first."""

HOT_COST = 10
SCORE_MAX = 100

ORDER = ("share", "local_score", "judge_one", "whole_part", "judge_quick", "judge", "better", "best_of", "top_of", "tally_of",
         "apply", "domains_of", "refuse", "weigh_facts", "weigh_likes", "weigh_spread", "weigh", "place_run",
         "climb", "place_many")  # fmt: skip
"""The functions below, callees first."""


def share(strategy, asked, whole, shape):
    """0..100 of one resource."""
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
            # Towards zero, as integers of Go divide.
            return shape[i - 1, 1] + (rise // run if rise >= 0 else -(-rise // run))
    return shape[len(shape) - 1, 1]


def local_score(n, free, alloc, held, plus, form, fit, balance, shape, load, per):
    """What one node's own state makes of the score."""
    total = plus[n]
    if form[1] != 0:
        summed, weights = 0, 0
        for i in range(len(fit)):
            whole = alloc[fit[i, 1], n]
            if whole == 0:
                continue
            asked = fit[i, 3] + (held[fit[i, 1], n] if fit[i, 0] == 0 else whole - free[fit[i, 1], n])
            part = share(form[0], asked, whole, shape)
            if form[0] == RATIO and part <= 0:
                continue
            summed += part * fit[i, 2]
            weights += fit[i, 2]
        if weights > 0:
            # A ratio's mean is rounded, halves away from zero; the others' is cut.
            total += form[1] * ((2 * summed + weights) // (2 * weights) if form[0] == RATIO else summed // weights)
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


def judge_one(n, static, free, alloc, held, plus, asks, form, fit, balance, shape, load, per, verdicts, scores):
    """Writes the node's verdict and score as far as its own state goes."""
    verdict = static[n]
    for i in range(len(asks)):
        if asks[i, 2] != 0 and free[asks[i, 0], n] < asks[i, 1] and (verdict == 0 or asks[i, 2] < verdict):
            verdict = asks[i, 2]
    verdicts[n] = verdict
    if verdict == 0:
        scores[n] = local_score(n, free, alloc, held, plus, form, fit, balance, shape, load, per)


def whole_part(dividend, divisor, inverse):
    """The integer part of a quotient of two whole doubles, by the divisor's inverse: that is never off by more than one, and
    the remainder, which is exact, tells."""
    quotient = np.floor(dividend * inverse)
    rest = dividend - quotient * divisor
    return quotient + (1.0 if rest >= divisor else 0.0) - (1.0 if rest < 0.0 else 0.0)


def judge_quick(size, free, alloc, inverse, held, plus, cpu, memory, form, fit, scores):
    """`scores` of all slots, feasible or not, as `local_score` has them, without a branch. `cpu`, `memory`: what is asked."""
    weight_cpu, weight_memory = fit[0, 2], fit[1, 2]
    scored_cpu, scored_memory = form[5], form[6]
    weights = float(weight_cpu + weight_memory)
    part = 1.0 / weights
    least = form[0] == LEAST
    for n in range(size):
        # A slot without a node has none, and its score is never read.
        whole_cpu, whole_memory = float(max(alloc[0, n], 1)), float(max(alloc[1, n], 1))
        asked_cpu, asked_memory = float(held[0, n] + scored_cpu), float(held[1, n] + scored_memory)
        left_cpu, left_memory = max(whole_cpu - asked_cpu, 0.0), max(whole_memory - asked_memory, 0.0)
        if not least:
            left_cpu, left_memory = whole_cpu - left_cpu, whole_memory - left_memory
        parts = (
            whole_part(left_cpu * 100.0, whole_cpu, inverse[0, n]) * weight_cpu
            + whole_part(left_memory * 100.0, whole_memory, inverse[1, n]) * weight_memory
        )
        total = whole_part(parts, weights, part) * form[1]
        # The deviation's last bit counts, so these are divided as the formula has it.
        of_cpu = min(1.0, (whole_cpu - float(free[0, n]) + cpu) / whole_cpu)
        of_memory = min(1.0, (whole_memory - float(free[1, n]) + memory) / whole_memory)
        total += np.floor((1.0 - abs((of_cpu - of_memory) / 2.0)) * 100.0) * form[2]
        scores[n] = int(total) + plus[n]


def judge(size, static, free, alloc, inverse, held, plus, asks, form, fit, balance, shape, load, per, verdicts, scores):
    """`judge_one` of every slot."""
    if form[4] != 0:
        judge_quick(size, free, alloc, inverse, held, plus, balance[0, 1], balance[1, 1], form, fit, scores)
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
        judge_one(n, static, free, alloc, held, plus, asks, form, fit, balance, shape, load, per, verdicts, scores)


def better(a, b, scores, hashes, seed, ranks):
    """Whether slot `a` goes before slot `b`: score, then hash of the name mixed with the class's seed, then name."""
    if scores[a] != scores[b]:
        return scores[a] > scores[b]
    mixed_a, mixed_b = hashes[a] ^ seed, hashes[b] ^ seed
    return mixed_a > mixed_b if mixed_a != mixed_b else ranks[a] > ranks[b]


def best_of(size, verdicts, scores, hashes, seed, ranks):
    """The best feasible slot; -1: none is."""
    top = -1
    for n in range(size):
        top = max(top, scores[n] if verdicts[n] == 0 else -1)
    best = -1
    if top < 0:
        return best
    for n in range(size):
        if scores[n] == top and verdicts[n] == 0 and (best < 0 or better(n, best, scores, hashes, seed, ranks)):
            best = n
    return best


def top_of(size, verdicts, scores, hashes, seed, ranks, top):
    """The best feasible slots, best first, as many as `top` takes; how many there are. Few: they are inserted one by one."""
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
    """How many slots have each verdict, by its detail: what of it is below the length of `tally`, a power of two. The feasible ones
    are passed over by stretches."""
    for first in range(0, size, STRETCH):
        last = min(first + STRETCH, size)
        against = 0
        for n in range(np.uint64(first), np.uint64(last)):  # a sign would have to be looked at each time
            against |= verdicts[n]
        if against == 0:
            tally[0] += last - first
            continue
        for n in range(first, last):
            tally[verdicts[n] & (len(tally) - 1)] += 1


def apply(n, free, held, load, asks, form):
    """A replica comes to the node."""
    for i in range(len(asks)):
        free[asks[i, 0], n] -= asks[i, 1]
    held[0, n] += form[5]
    held[1, n] += form[6]
    load[1, n] += 1


def domains_of(hard, counts, lows):
    """For each hard spread constraint how many pods the emptiest domain has. `counts` below zero: no domain of it."""
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
    """Lowers `verdicts` where other pods speak against a node: row by row over all nodes and without branches, which is how it is
    quick. A node without the label reads the first count of the stretch, and does not use it."""
    for b in range(len(blocks)):
        key, base, verdict = blocks[b, 0], blocks[b, 1], blocks[b, 3]
        for n in range(size):
            code = n if key < 0 else codes[max(key, 0), n]
            before = verdicts[n]
            against = (code >= 0) & (counts[base + max(code, 0)] > 0) & ((before == 0) | (verdict < before))
            verdicts[n] = verdict if against else before
    # The first of a group that wants to stand together goes anywhere where the labels are.
    first = len(joins) > 0 and joined[0] == 0 and joined[1] != 0
    for j in range(len(joins)):
        key, base, verdict = joins[j, 0], joins[j, 1], joined[2]
        for n in range(size):
            code = codes[key, n]
            before = verdicts[n]
            there = (code >= 0) & (first | (counts[base + max(code, 0)] > 0))
            verdicts[n] = before if there | ((before != 0) & (before <= verdict)) else verdict
    # Of several constraints the first that fails is told, so they are gone through from the last.
    for h in range(len(hard) - 1, -1, -1):
        key, base, most = hard[h, 0], hard[h, 1], hard[h, 3] + lows[h] - hard[h, 4]
        missing, skewed = hard[h, 6], hard[h, 7]
        for n in range(size):
            code = codes[key, n]
            before = verdicts[n]
            verdict = missing if code < 0 else skewed
            fails = (code < 0) | (max(counts[base + max(code, 0)], 0) > most)
            counts_for = (before == 0) | (verdict < before) | (before == missing) | (before == skewed)
            verdicts[n] = verdict if fails & counts_for else before


def weigh_facts(size, verdicts, raws, weights, scores):
    """Preferred taints and node affinity, in proportion to the most there is of them on a feasible node."""
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
    """Affinity between pods, between the least and the most of it on a feasible node. `raw` int64[N]: room to work in."""
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


def weigh_spread(size, verdicts, codes, counts, soft, needs_all, weight, logs, seen, sums, raw, scores):
    """Soft spread; 0, or -k - 1 when the weight of k domains is not in `logs`. `sums` float64[N]: below zero: not scored."""
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
    size, local_verdicts, local_scores, codes, counts, blocks, joins, joined, hard, likes, soft, needs_all, raws, weights, logs,
    lows, seen, sums, raw, verdicts, scores,
):  # fmt: skip
    """Verdict and total of every slot; returns how many are feasible, or -k - 1 when the weight of k domains is not in `logs`.

    `raws` [2, N]: preferred taints not borne, preferred node affinity; `weights` [4]: of those, of spread, of affinity between
    pods. `sums` float64[N], `raw` [N], `seen`, `lows` are room to work in. Scores of nodes that are not feasible mean nothing.
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
            size, verdicts, codes, counts, soft, needs_all, weights[2], logs, seen, sums, raw, scores
        )
        if missing < 0:
            return missing
    return found


def place_run(
    count, done, size, static, free, alloc, inverse, held, plus, asks, form, fit, balance, shape, load, per, codes, counts, blocks,
    joins, joined, hard, admits, likes, soft, needs_all, raws, weights, logs, hashes, seed, ranks, lows, seen, sums, raw,
    local_verdicts, local_scores, verdicts, scores, nodes, totals,
):  # fmt: skip
    """Up to `count` equal pods one after another, from number `done` on, which go by other pods: each sees the last.

    Returns how many are placed by now, or -k as `weigh`, when it shall be called again. `nodes`, `totals` [count]: where to, and
    what the node scored. `admits` [constraints, N]: whether pods on the node count for a constraint, the hard ones first."""
    judge(
        size, static, free, alloc, inverse, held, plus, asks, form, fit, balance, shape, load, per, local_verdicts,
        local_scores,
    )  # fmt: skip
    while done < count:
        found = weigh(
            size, local_verdicts, local_scores, codes, counts, blocks, joins, joined, hard, likes, soft, needs_all, raws, weights,
            logs, lows, seen, sums, raw, verdicts, scores,
        )  # fmt: skip
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
    """Slot `n` has changed: who wins on its way up. `tree` [2 * leaves]: the best slot below each inner node, -1: none."""
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
    first, last, size, statics, static_of, free, alloc, inverse, held, pluses, plus_of, asks, forms, fits, balances, shape, load,
    per, hashes, seeds, ranks, counts, offsets, tree, leaves, verdicts, scores, nodes, totals, tops, top_scores, tallies,
):  # fmt: skip
    """Classes `first` to `last`, one after another, of whom none goes by other pods or by what the best of others scores: so a
    placed replica changes one node for its class, and the best is found by a tournament.

    `statics`, `pluses`: columns that `static_of`, `plus_of` number; the other arrays of a class have one dimension more than
    those of `judge`. A class's nodes lie from its offset on in `nodes` and `totals`; a slot of -1 ends them.

    Where `tops` has room, what there was before the class was placed is recorded: the best slots in `tops` (-1 ends them) with
    `top_scores`, and in `tallies` how many slots have which verdict."""
    recorded = tops.shape[1] > 0
    for c in range(first, last):
        ask, form, fit, balance = asks[c], forms[c], fits[c], balances[c]
        static, plus, seed = statics[static_of[c]], pluses[plus_of[c]], seeds[c]
        judge(
            size, static, free, alloc, inverse, held, plus, ask, form, fit, balance, shape, load, per, verdicts, scores
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
                    best, static, free, alloc, held, plus, ask, form, fit, balance, shape, load, per, verdicts, scores
                )
                climb(tree, leaves, best, size, verdicts, scores, hashes, seed, ranks)
