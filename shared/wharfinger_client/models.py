"""Shapes of answers. A member that is not named here may be there too: newer servers say more."""

from __future__ import annotations

from typing import Any, Generic, Literal, Required, TypedDict, TypeVar

T = TypeVar("T")

Role = Literal["viewer", "operator", "auditor", "service", "admin"]


class Page(TypedDict, Generic[T], total=False):
    """`next`: `after` of the next page, None on the last. With `group_by`: `groups`, no items."""

    items: list[T]
    groups: list[dict[str, Any]]
    total: int
    next: str | None


class Target(TypedDict):
    cluster: str
    replicas: int


class Binding(TypedDict, total=False):
    """`outcome`: of its latest request. `placed`: replicas on nodes."""

    name: str
    replicas: int
    outcome: str
    decision: str | None
    policy: str
    labels: dict[str, str]
    targets: list[Target]
    placed: int


class Cluster(TypedDict, total=False):
    """`nodes`: how many."""

    name: str
    labels: dict[str, str]
    provider: str
    region: str
    nodes: int
    silent: bool


class Node(TypedDict, total=False):
    """`allocatable`: thousandths of a core, bytes, counts. `replicas`: on it."""

    name: str
    cluster: str
    labels: dict[str, str]
    allocatable: dict[str, int]
    unschedulable: bool
    replicas: int


class Policy(TypedDict, total=False):
    """`bindings`: how many it places."""

    key: str
    kind: str
    namespace: str
    name: str
    bindings: int


class Decision(TypedDict):
    """`data`: as it was recorded; its shape follows from `type`."""

    id: str
    stream: str
    seq: int
    round: int
    type: str
    subject: str
    outcome: str
    time: str
    cause: str | None
    data: dict[str, Any]


class History(TypedDict):
    """`decisions`: each with `after_s` and `because`."""

    binding: str
    total: int
    decisions: list[dict[str, Any]]


class Lineage(TypedDict):
    """`roots`: first causes; each link has `id`, `kind` and `children`."""

    subject: str
    cut: bool
    roots: list[dict[str, Any]]


class Explanation(TypedDict):
    """Why it is where it is."""

    binding: str
    decision: dict[str, Any] | None
    undecided: dict[str, Any] | None
    steady: dict[str, Any] | None
    waiting: dict[str, Any] | None
    unacted: list[dict[str, Any]]
    history: list[Decision]
    total: int


class ObjectResult(TypedDict):
    type: str
    subject: str
    result: Literal["created", "changed", "unchanged", "deleted"]


class FactKey(TypedDict):
    topic: str
    key: str


class Changes(TypedDict):
    """`events`: type of fact -> how many. `position`: `min_position` of a read that shall see them;
    None: nothing was accepted, or the feed is behind. `facts`: to wait for, with `barrier`."""

    events: dict[str, int]
    accepted: int
    unchanged: int
    outdated: int
    objects: list[ObjectResult]
    skipped: list[dict[str, Any]]
    unacted: list[str]
    dry_run: bool
    position: int | None
    facts: list[FactKey]


class Upkeep(TypedDict):
    """`position`, `facts`: as of `Changes`. `leaving`: the bindings that a drained cluster has to
    lose."""

    subject: str
    result: Literal["changed", "unchanged"]
    position: int | None
    facts: list[FactKey]
    leaving: list[str]


Level = Literal["accepted", "decided", "published", "placed"]


class BarrierPending(TypedDict):
    """`state`: what is missing, in words behind the subject."""

    subject: str
    state: str


class BarrierRefused(TypedDict):
    binding: str
    said: str
    decision: str | None


class BarrierReport(TypedDict):
    """`reached`: nothing is pending. `pending`, `refused`: at most 50 of their counts."""

    until: Level
    reached: bool
    bindings: int
    position: int | None
    pending: list[BarrierPending]
    pending_count: int
    refused: list[BarrierRefused]
    refused_count: int


class FactsAccepted(TypedDict):
    """Ids: of what is new, what was posted before, and what is older than the latest of its key."""

    accepted: list[str]
    known: list[str]
    outdated: list[str]
    position: int | None


class StreamHead(TypedDict):
    stream: str
    round: int
    seq: int
    time: str | None


class Items(TypedDict, Generic[T]):
    items: list[T]


class Who(TypedDict):
    type: str
    id: str
    roles: list[Role]
    namespaces: list[str]


class Secret(TypedDict):
    """`secret`: shown this once. `expires`: RFC 3339."""

    id: str
    secret: str
    name: str
    roles: list[Role]
    namespaces: list[str]
    expires: str | None


class Token(TypedDict):
    id: str
    name: str
    roles: list[Role]
    namespaces: list[str]
    made_by: str
    made: str
    expires: str | None
    revoked: str | None


class Access(TypedDict):
    """`count`: this one and those like it that have no record of their own."""

    seq: int
    time: str
    actor: str
    action: str
    target: str
    outcome: Literal["allowed", "refused"]
    reason: str
    request: str
    count: int


class AccessPage(TypedDict):
    items: list[Access]
    next: str | None


class Ready(TypedDict):
    ready: bool
    services: dict[str, Any]


class WantedScale(TypedDict):
    kind: Literal["scale"]
    binding: str
    replicas: int


class WantedDrain(TypedDict):
    """`what`: a cluster, or a node as `cluster/node`."""

    kind: Literal["drain"]
    what: str


class WantedManifests(TypedDict, total=False):
    """`manifests`, `policies`: each with `name` and `text`. `events`: facts as CloudEvents."""

    kind: Required[Literal["manifests"]]
    manifests: list[dict[str, str]]
    policies: list[dict[str, str]]
    events: list[dict[str, Any]]
    strict: bool


WantedPlan = WantedScale | WantedDrain | WantedManifests


class Plan(TypedDict):
    """`answers`: stream -> what it is expected to decide. `expires`: RFC 3339."""

    id: str
    made_at: str
    made_by: str
    expires: str
    digest: str
    changes: bool
    streams: list[str]
    answers: dict[str, list[dict[str, Any]]]
    moves: list[dict[str, Any]]
    refusals: list[dict[str, Any]]
    placements: list[dict[str, Any]]
    stuck: list[str]
    unsure: list[str]
    declined: list[str]
    within_s: float
    horizon_s: float
    before: dict[str, Any]
    after: dict[str, Any]
    operation: str | None
    unacted: list[str]
    skipped: list[dict[str, Any]]
    command: str


class AppliedPlan(TypedDict):
    """`committed`: stream -> id of its decision. `again`: it had happened before."""

    state: Literal["applied"]
    plan: str
    applied: bool
    again: bool
    committed: dict[str, str]
    position: int | None


class Operation(TypedDict):
    """`done` steps `of` all. `problem`: why it did not succeed."""

    id: str
    kind: Literal["plan", "apply"]
    actor: str
    made: str
    changed: str
    state: Literal["running", "cancelling", "succeeded", "failed", "cancelled"]
    step: str
    done: int
    of: int
    plan: str | None
    result: dict[str, Any] | None
    problem: dict[str, Any] | None


WebhookOrder = Literal["key", "all", "none"]


class _WebhookSecret(TypedDict, total=False):
    secret: str


class Webhook(_WebhookSecret):
    """`position`: the feed was looked at up to here. `deliveries`: how many there are, by state.
    `secret`: in the answer of making and rotating only. `holds_until`: unless its maker comes for
    it before; None: as long as the token it was made with."""

    id: str
    name: str
    url: str
    filter: dict[str, Any]
    order: WebhookOrder
    made_by: str
    made: str
    holds_until: str | None
    state: Literal["active", "paused", "broken", "ended"]
    why: str
    position: int
    failures: int
    deliveries: dict[str, int]
    etag: str


class Redelivery(TypedDict):
    """`count`: dead letters that are tried again."""

    count: int
    webhook: Webhook


class WebhookDelivery(TypedDict):
    """`status`: of the last answer, 0 where there was none. `answer`: its first bytes."""

    sequence: int
    position: int
    event: str
    key: str
    state: Literal["waiting", "delivered", "dead"]
    tries: int
    changed: str
    next_try: str | None
    status: int
    error: str
    answer: str
    latency_us: int
