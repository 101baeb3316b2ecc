"""Options of a policy beyond its own API: annotations under `wharfinger.io/`.

An annotation is text, but it is read as strictly as a field: an unknown word, text that is no
number or a limit that contradicts itself is refused with the name of the annotation. An annotation
that is absent changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from wharfinger.domain.placement import Placement, ReplicaLimit, Steadiness
from wharfinger.manifests.errors import Path
from wharfinger.manifests.model import ExpectedError, is_name

PREFIX = "wharfinger.io/"
REMAINDER = PREFIX + "remainder"
FAILOVER = PREFIX + "failover"
STATIC_WEIGHTS = PREFIX + "static-weights"
MIN_REPLICAS = PREFIX + "min-replicas"
MAX_REPLICAS = PREFIX + "max-replicas"
FAILBACK_AFTER_S = PREFIX + "failback-after-s"
REBALANCE_AFTER_S = PREFIX + "rebalance-after-s"
WINDOW_S = PREFIX + "stabilization-window-s"
GAIN_PERCENT = PREFIX + "rebalance-gain-percent"
BUDGET_PERCENT = PREFIX + "rebalance-budget-percent"
COMPAT = PREFIX + "compat"
CLUSTERS = PREFIX + "clusters"
"""Of what could hold in every cluster: those in which it does, separated by commas."""
INSTANCE_TYPES = PREFIX + "instance-types"
"""Of a NodePool: the catalogue of instance types that its nodes are taken from."""
MIN_VALUES = PREFIX + "min-values"
PREFERENCES = PREFIX + "preferences"
RESERVED = PREFIX + "reserved-offerings"
SPOT_TO_SPOT = PREFIX + "spot-to-spot"
PACKING = PREFIX + "packing"
LEAST_SAVING = PREFIX + "least-saving"
"""Of a NodePool: how its nodes are asked for, and what is consolidated."""
EVERY_S = PREFIX + "every-s"
STEADY = PREFIX + "steady-passes"
COOLDOWN_S = PREFIX + "cooldown-s"
RETURN_S = PREFIX + "return-s"

SCHEDULER = PREFIX + "scheduler"
"""Of a Placement whose own scheduler is switched off: `wharfinger` if we decide it instead."""
WRITTEN = PREFIX + "written"
"""Of a binding in a hub: a digest of the clusters that were written last. So a change by others is
told from a new decision without a memory."""
DRIFT = PREFIX + "drift"
"""Of a binding in a hub: `restore` if a change of its clusters by others is to be undone; else it
is accepted until the next decision."""

OF_POLICIES = (
    REMAINDER,
    FAILOVER,
    STATIC_WEIGHTS,
    MIN_REPLICAS,
    MAX_REPLICAS,
    FAILBACK_AFTER_S,
    REBALANCE_AFTER_S,
    WINDOW_S,
    GAIN_PERCENT,
    BUDGET_PERCENT,
    COMPAT,
    WRITTEN,
    DRIFT,
)
"""The annotations that a policy with replicas may have. Any other that begins with the prefix is
reported as not acted on."""

EVERY = "*"
SECONDS_MAX = 10**8
REPLICAS_MAX = 2**31 - 1
LIMITS_MAX = 1000

Annotations = Mapping[str, str]


def extended(placement: Placement, said: Annotations) -> Placement:
    """The placement with what its policy's annotations add. Raises ExpectedError, naming the
    annotation."""
    replicas = msgspec.structs.replace(
        placement.replicas,
        remainder="in-order"
        if word(said, REMAINDER, "webster", "in-order") == "in-order"
        else "webster",
        within_capacity=word(said, STATIC_WEIGHTS, "within-capacity") is not None,
        limits=_limits(said),
    )
    return msgspec.structs.replace(
        placement,
        replicas=replicas,
        failover="reserve" if word(said, FAILOVER, "evict", "reserve") == "reserve" else "evict",
        steadiness=_steadiness(said),
        strict=strict(said),
    )


def strict(said: Annotations) -> bool:
    """Whether to decide exactly as the policy's own system does, also where we decide otherwise on
    purpose. Raises ExpectedError."""
    return word(said, COMPAT, "strict") is not None


def unknown(said: Annotations, known: tuple[str, ...], path: Path = ()) -> Iterator[Path]:
    """The paths of annotations that have our prefix and are not among the known ones."""
    for key in said:
        if key.startswith(PREFIX) and key not in known:
            yield (*path, "metadata", "annotations", key)


def word(said: Annotations, key: str, *known: str) -> str | None:
    """One of the known words; None where the annotation is not there. Raises ExpectedError."""
    text = said.get(key)
    if text is not None and text not in known:
        raise _expected(key, " or ".join(f"'{w}'" for w in known))
    return text


def names(said: Annotations, key: str) -> tuple[str, ...]:
    """Names separated by commas, each once; none where the annotation is not there. Raises
    ExpectedError."""
    text = said.get(key)
    if text is None:
        return ()
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    if not all(is_name(name) for name in found) or len(found) > LIMITS_MAX:
        raise _expected(
            key, f"at most {LIMITS_MAX} names separated by commas, such as 'oslo,bergen'"
        )
    return found


def number(said: Annotations, key: str, low: int, high: int) -> int | None:
    """A whole number; None where the annotation is not there. Raises ExpectedError."""
    text = said.get(key)
    if text is None:
        return None
    value = _whole(text)
    if value is None or not low <= value <= high:
        raise _expected(key, f"an integer from {low} to {high}")
    return value


def _steadiness(said: Annotations) -> Steadiness:
    usual = Steadiness()
    window = number(said, WINDOW_S, 0, SECONDS_MAX)
    gain = number(said, GAIN_PERCENT, 0, 100)
    budget = number(said, BUDGET_PERCENT, 1, 100)
    return Steadiness(
        number(said, FAILBACK_AFTER_S, 0, SECONDS_MAX),
        number(said, REBALANCE_AFTER_S, 0, SECONDS_MAX),
        usual.window_s if window is None else window,
        usual.gain_percent if gain is None else gain,
        usual.budget_percent if budget is None else budget,
    )


def _limits(said: Annotations) -> tuple[ReplicaLimit, ...]:
    """In order of name, the one for every other cluster last. A cluster named in one of the two
    lists only has what the other says of every cluster."""
    least, most = _by_cluster(said, MIN_REPLICAS, 0), _by_cluster(said, MAX_REPLICAS, 1)
    limits = []
    for cluster in sorted({*least, *most}, key=lambda name: (name == EVERY, name)):
        low = least.get(cluster, least.get(EVERY, 0))
        high = most.get(cluster, most.get(EVERY))
        if high is not None and high < low:
            raise _expected(
                MAX_REPLICAS, f"at least {low} for {cluster}, which is what {MIN_REPLICAS} asks"
            )
        limits.append(ReplicaLimit(cluster, low, high))
    return tuple(limits)


def _by_cluster(said: Annotations, key: str, low: int) -> dict[str, int]:
    """`oslo=2,*=1` as a mapping."""
    text = said.get(key)
    if text is None:
        return {}
    limits: dict[str, int] = {}
    for part in text.split(","):
        cluster, equals, digits = part.strip().partition("=")
        cluster, replicas = cluster.strip(), _whole(digits.strip())
        if not equals or not cluster or replicas is None or not low <= replicas <= REPLICAS_MAX:
            raise _expected(
                key,
                f"clusters with a number from {low} to {REPLICAS_MAX} each, "
                f"such as 'oslo=2,{EVERY}=1'",
            )
        if cluster in limits:
            raise _expected(key, f"each cluster once, and {cluster} twice is no limit")
        limits[cluster] = replicas
    if len(limits) > LIMITS_MAX:
        raise _expected(key, f"at most {LIMITS_MAX} clusters")
    return limits


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 12 else None


def _expected(key: str, text: str) -> ExpectedError:
    return ExpectedError(text, "metadata", "annotations", key)
