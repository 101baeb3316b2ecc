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


class UpkeepBody(Out):
    """`position`: what was accepted has this position of the feed or an earlier one; null: nothing
    was changed, or the feed is behind."""

    subject: str
    result: Literal["changed", "unchanged"]
    position: int | None


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
    position of the feed or an earlier one; null: the feed is behind, or nothing was accepted."""

    events: dict[str, int]
    accepted: int
    unchanged: int
    outdated: int
    objects: list[ObjectResultBody]
    skipped: list[SkippedBody]
    unacted: list[str]
    dry_run: bool
    position: int | None


class FactsAccepted(Out):
    """Ids under which they are recorded: of what is new, what was posted before, and what is older
    than the latest of its key, which was refused."""

    accepted: list[str]
    known: list[str]
    outdated: list[str]
    position: int | None
