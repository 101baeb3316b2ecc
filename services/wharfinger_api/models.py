"""Shapes of bodies, for the OpenAPI document and for what comes in. What goes out is not passed
through them: recorded bytes are sent as they are, and the document is held to the answers by
tests."""

from __future__ import annotations

from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

T = TypeVar("T")

Short = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[^\x00-\x1f\x7f]*$")]
RoleName = Literal["viewer", "operator", "auditor", "service", "admin"]


class Out(BaseModel):
    """More members may come: readers leave out what they do not know."""

    model_config = ConfigDict(extra="allow")


class In(BaseModel):
    """Unknown members are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class ProblemBody(Out):
    """As RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    request_id: str
    errors: list[dict[str, Any]] | None = None


class PageBody(Out, Generic[T]):
    """`next`: the value of `after` for the next page, null on the last one. With `group_by`:
    `groups` instead of items."""

    items: list[T] | None = None
    groups: list[dict[str, Any]] | None = None
    total: int | None = None
    next: str | None = None


class TargetBody(Out):
    cluster: str
    replicas: int


class BindingBody(Out):
    """With `fields` only some members are there."""

    name: str | None = None
    replicas: int | None = None
    outcome: str | None = None
    decision: str | None = None
    policy: str | None = None
    targets: list[TargetBody] | None = None
    placed: int | None = None


class ClusterBody(Out):
    name: str | None = None
    nodes: int | None = None
    silent: bool | None = None


class NodeBody(Out):
    name: str | None = None
    cluster: str | None = None
    replicas: int | None = None


class PolicyBody(Out):
    key: str | None = None
    kind: str | None = None
    bindings: int | None = None


class OnePolicyBody(Out):
    key: str
    kind: str


class DecisionBody(Out):
    """As recorded; `data` has the schema of its `type` (`wharfinger schema export`)."""

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


class CauseBody(Out):
    kind: Literal["event", "decision", "time", "unknown"]
    id: str | None
    said: str


class HistoryEntry(DecisionBody):
    after_s: float | None
    because: CauseBody


class BindingHistory(Out):
    binding: str
    total: int
    decisions: list[HistoryEntry]


class LineageLinkBody(Out):
    id: str
    kind: Literal["decision", "event", "unrecorded", "other"]
    asked: bool
    children: list[LineageLinkBody]


class LineageGraph(Out):
    subject: str
    cut: bool
    roots: list[LineageLinkBody]


class ExplanationBody(Out):
    binding: str
    decision: dict[str, Any] | None
    undecided: dict[str, Any] | None
    steady: dict[str, Any] | None
    waiting: dict[str, Any] | None
    unacted: list[dict[str, Any]]
    history: list[DecisionBody]
    total: int


class StreamHeadBody(Out):
    stream: str
    round: int
    seq: int
    time: str | None


class StreamsBody(Out):
    items: list[StreamHeadBody]


class StatusBody(Out):
    """As `wharfinger status -o json` prints it. `database`: without its password."""

    ready: bool
    data_dir: str
    kafka: str
    database: str
    processes: dict[str, Any]
    services: dict[str, Any]
    relay: dict[str, Any]
    requests: dict[str, Any]
    clock_skew_s: float
    streams: dict[str, Any]


class WhoBody(Out):
    type: str
    id: str
    roles: list[str]
    namespaces: list[str]


class LoginBody(In):
    code: Annotated[str, Field(min_length=1, max_length=200)]


class NewToken(In):
    """`namespaces`: empty means all. `sources`: of facts, for the role `service`."""

    name: Short
    roles: Annotated[list[RoleName], Field(min_length=1, max_length=5)]
    namespaces: Annotated[list[Short], Field(max_length=1000)] = []
    sources: Annotated[list[Short], Field(max_length=100)] = []
    lifetime_s: Annotated[int, Field(ge=60, le=366 * 86_400)] = 30 * 86_400


class SecretBody(Out):
    id: str
    secret: str
    name: str
    roles: list[str]
    namespaces: list[str]
    expires: str | None


class TokenShown(Out):
    id: str
    name: str
    roles: list[str]
    namespaces: list[str]
    made_by: str
    made: str
    expires: str | None
    revoked: str | None


class TokenList(Out):
    items: list[TokenShown]


class AccessBody(Out):
    """`action`: method and path of the route, or the command. `reason`: why it was refused.
    `count`: this one and those like it that have no record of their own. `request`: `X-Request-Id`
    of the answer."""

    seq: int
    time: str
    actor: str
    action: str
    target: str
    outcome: Literal["allowed", "refused"]
    reason: str
    request: str
    count: int


class AccessPage(Out):
    """`next`: `after` of the page behind this one."""

    items: list[AccessBody]
    next: str | None


class ManifestText(In):
    """`name`: what errors call it, such as the name of a file. `text`: YAML or JSON, one or more
    documents."""

    name: Short
    text: Annotated[str, Field(max_length=4_194_304)]


OneLine = Annotated[str, Field(max_length=500, pattern=r"^[^\x00-\x1f\x7f]*$")]


class ManifestsBody(In):
    """`dry_run`: what would come of it; nothing is accepted. `reason`, `revision`: recorded with
    what is changed."""

    manifests: Annotated[list[ManifestText], Field(max_length=1000)] = []
    dry_run: bool = False
    reason: OneLine = ""
    revision: OneLine = ""


class OneManifestBody(In):
    """`text`: one manifest that becomes this binding, as YAML or JSON."""

    text: Annotated[str, Field(max_length=4_194_304)]
    reason: OneLine = ""
    revision: OneLine = ""


class ScaleBody(In):
    """`replicas`: of the binding, in all clusters together."""

    replicas: Annotated[int, Field(ge=0, le=1_000_000)]
    reason: OneLine = ""
    revision: OneLine = ""


class DrainBody(In):
    """`what`: a cluster, or a node as `cluster/node`, or by its name where only one cluster has
    it."""

    what: Short
    reason: OneLine = ""
    revision: OneLine = ""


class FactKeyBody(In):
    """Which fact: the latest under `key` of `topic`."""

    topic: Short
    key: Annotated[str, Field(min_length=1, max_length=1000, pattern=r"^[^\x00-\x1f\x7f]*$")]


class FactKeyShown(Out):
    topic: str
    key: str


class UpkeepBody(Out):
    """`position`: what was accepted has this position of the feed or an earlier one; null: nothing
    was changed, or the feed is behind. `facts`, `leaving`: for `/v1/barrier`; the bindings that a
    drained cluster has to lose."""

    subject: str
    result: Literal["changed", "unchanged"]
    position: int | None
    facts: list[FactKeyShown]
    leaving: list[str]


class BarrierBody(In):
    """What is waited for: that the latest facts under these keys are `accepted` (they have a
    position), `decided`, `published`, or `placed` on nodes. `bindings`: that have to leave a
    cluster that was drained (`leaving` of `/v1/drain`), or that a plan moves."""

    until: Literal["accepted", "decided", "published", "placed"] = "decided"
    facts: Annotated[list[FactKeyBody], Field(min_length=1, max_length=100_000)]
    bindings: Annotated[list[Short], Field(max_length=100_000)] = []


class BarrierPendingBody(Out):
    subject: str
    state: str


class BarrierRefusedBody(Out):
    binding: str
    said: str
    decision: str | None


class BarrierReportBody(Out):
    """`reached`: nothing is pending; what was refused is not waited for. `pending`, `refused`: at
    most 50 of `pending_count`, `refused_count`. `position`: of the last that was waited for; null:
    the feed is behind."""

    until: str
    reached: bool
    bindings: int
    position: int | None
    pending: list[BarrierPendingBody]
    pending_count: int
    refused: list[BarrierRefusedBody]
    refused_count: int


class WantedScale(In):
    """`binding`: `namespace/name`, or as much of it as only one has."""

    kind: Literal["scale"]
    binding: Short
    replicas: Annotated[int, Field(ge=0, le=1_000_000)]


class WantedDrain(In):
    """`what`: a cluster, or a node as `cluster/node`, or by its name where only one cluster has
    it."""

    kind: Literal["drain"]
    what: Short


class WantedManifests(In):
    """`manifests` and `policies` as if they were applied, and `events`: facts as CloudEvents.
    `strict`: an object that would be placed nowhere is wrong."""

    kind: Literal["manifests"]
    manifests: Annotated[list[ManifestText], Field(max_length=1000)] = []
    policies: Annotated[list[ManifestText], Field(max_length=1000)] = []
    events: Annotated[list[dict[str, Any]], Field(max_length=10_000)] = []
    strict: bool = False


class ApplyPlanBody(In):
    """`reason`, `revision`: recorded with what is changed."""

    reason: OneLine = ""
    revision: OneLine = ""


class PlanBody(Out):
    """As `wharfinger plan -o json` prints it. `digest`: SHA-256 of the plan, which is its `ETag`
    too. `answers`: stream -> what it is expected to decide. `expires`: from then on it is not
    carried out. `unacted`, `skipped`: of the manifests it was made of, where it was just made."""

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


class AppliedPlanBody(Out):
    """`committed`: stream -> id of its decision. `again`: it had happened before. `position`: of
    the last of these decisions; null: the feed is behind."""

    state: Literal["applied"]
    plan: str
    applied: bool
    again: bool
    committed: dict[str, str]
    position: int | None


class OperationBody(Out):
    """`done` steps `of` all; `step`: the one under way. `plan`: that was made, or is carried out.
    `problem`: why it did not succeed."""

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


class OperationsBody(Out):
    items: list[OperationBody]


class ApplyBody(ManifestsBody):
    """`events`: facts as CloudEvents, as `generate fleet --out` writes them. `strict`: an object
    that would be placed nowhere is wrong."""

    events: Annotated[list[dict[str, Any]], Field(max_length=10_000)] = []
    strict: bool = False


class FactsBody(In):
    """Facts as CloudEvents."""

    events: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=10_000)]


class ObjectResultBody(Out):
    type: str
    subject: str
    result: Literal["created", "changed", "unchanged", "deleted"]


class SkippedBody(Out):
    api_version: str
    kind: str
    count: int
    why: str


class ChangesBody(Out):
    """`events`: type of fact -> how many. `position`: everything that was accepted has this
    position of the feed or an earlier one; null: the feed is behind, or nothing was accepted.
    `facts`: for `/v1/barrier`."""

    events: dict[str, int]
    accepted: int
    unchanged: int
    outdated: int
    objects: list[ObjectResultBody]
    skipped: list[SkippedBody]
    unacted: list[str]
    dry_run: bool
    position: int | None
    facts: list[FactKeyShown]


class FactsAccepted(Out):
    """Ids under which they are recorded: of what is new, what was posted before, and what is older
    than the latest of its key, which was refused."""

    accepted: list[str]
    known: list[str]
    outdated: list[str]
    position: int | None


class WebhookFilter(In):
    """As the parameters of `/v1/events`: of each any of, empty: all."""

    type: Annotated[list[Short], Field(max_length=100)] = []
    namespace: Annotated[list[Short], Field(max_length=100)] = []
    binding: Annotated[list[Short], Field(max_length=100)] = []
    cluster: Annotated[list[Short], Field(max_length=100)] = []
    stream: Annotated[list[Short], Field(max_length=100)] = []
    outcome: Annotated[list[Short], Field(max_length=100)] = []
    facts: bool = False


WebhookOrder = Literal["key", "all", "none"]


class WantedWebhook(In):
    """`order`: `key`: events about the same thing in order; `all`: all of them; `none`."""

    name: Short
    url: Annotated[str, Field(min_length=1, max_length=2000)]
    filter: WebhookFilter = WebhookFilter()
    order: WebhookOrder = "key"


class NewWebhook(WantedWebhook):
    """`after`: a position, `earliest`, `latest`, or a time: events beyond it are delivered."""

    after: Annotated[str, Field(max_length=64)] = "latest"


class ChangedWebhook(WantedWebhook):
    paused: bool = False


class RedeliveryWanted(In):
    """One of them. `after`: everything beyond it, as of a new subscription. `dead`: all dead
    letters. `sequence`: the dead letter of this delivery."""

    after: Annotated[str, Field(max_length=64)] | None = None
    dead: bool = False
    sequence: Annotated[int, Field(ge=1, lt=1 << 62)] | None = None


class WebhookCounts(Out):
    waiting: int
    delivered: int
    dead: int


class WebhookBody(Out):
    """`position`: the feed was looked at up to here. `deliveries`: how many there are, by state.
    `secret`: when it was made only. `holds_until`: unless its maker comes for it before; null: as
    long as the token it was made with."""

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
    deliveries: WebhookCounts
    etag: str
    secret: str | None = None


class WebhookList(Out):
    items: list[WebhookBody]


class RedeliveryBody(Out):
    """`count`: of dead letters that are tried again."""

    count: int
    webhook: WebhookBody


class DeliveryBody(Out):
    """`status`: of the last answer; 0: there was none. `answer`: its first bytes."""

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
