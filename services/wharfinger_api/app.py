"""The application: its routes, in order of the document, each thin over `wharfinger.answers`.

`create` makes it for an open ledger. A request passes through `_Edge` (request id, errors, metrics)
and then through `_authorised`, which looks at the one table of routes and roles.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path as FilePath
from typing import Annotated, Any, TypeVar
from uuid import UUID, uuid4

import msgspec
from fastapi import Depends, FastAPI, Path, Query, Request
from fastapi.openapi.utils import get_openapi
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from wharfinger.answers import facts, typed
from wharfinger.answers.accesses import access_plain
from wharfinger.answers.changes import compiled, compiled_away
from wharfinger.answers.decisions import TYPES, as_line
from wharfinger.answers.facts import LatestFacts
from wharfinger.answers.lineage import lineage_plain
from wharfinger.answers.plane_status import NoPlaneError, status_of, status_plain, without_password
from wharfinger.answers.selection import ListSelection
from wharfinger.answers.timeline import history_plain
from wharfinger.answers.upkeep import MakeFact, drained, scaled, undrained
from wharfinger.domain.text import as_time
from wharfinger.events.accepted import Accepted
from wharfinger.events.streams import INTAKE
from wharfinger.history.lineage import lineage_of_binding, lineage_within
from wharfinger.history.timeline import timeline
from wharfinger.runtime.believed_sources import ALL_BELIEVED, BelievedSources
from wharfinger.runtime.ledger import DecisionQuery, Ledger, LedgerError, causality, feed
from wharfinger.runtime.ledger.access import Access, AccessQuery, Outcome, access_records
from wharfinger.runtime.ledger.at_position import PastDatabase
from wharfinger.runtime.ledger.feed import FeedFilter
from wharfinger.runtime.plane import PlaneError
from wharfinger_api import lists, one_binding, one_policy
from wharfinger_api.access import RULES, Principal, allowed, check_table
from wharfinger_api.asked import (
    LIMIT_MAX,
    Answering,
    Asked,
    cursor_in,
    cursor_text,
    cut_of,
    known_parameters,
    moment_in,
    none_given,
    own_namespaces,
    start_position,
)
from wharfinger_api.changing import changed, kept_up, once, posted, waited
from wharfinger_api.events import BATCH, LINES, SSE, Hub, StreamedAnswer, Valid, batch, event_stream
from wharfinger_api.figures import REQUEST_SECONDS, REQUESTS
from wharfinger_api.identities import Identities, principal_of
from wharfinger_api.known_requests import known_requests
from wharfinger_api.limits import RequestLimits
from wharfinger_api.models import (
    AccessPage,
    ApplyBody,
    BarrierBody,
    BarrierReportBody,
    BindingBody,
    BindingHistory,
    ChangesBody,
    ClusterBody,
    DecisionBody,
    DrainBody,
    ExplanationBody,
    FactsAccepted,
    FactsBody,
    LineageGraph,
    LoginBody,
    ManifestsBody,
    NewToken,
    NodeBody,
    OneManifestBody,
    OnePolicyBody,
    PageBody,
    PolicyBody,
    ProblemBody,
    ScaleBody,
    SecretBody,
    StatusBody,
    StreamsBody,
    TokenList,
    UpkeepBody,
    WhoBody,
)
from wharfinger_api.operations import Operations
from wharfinger_api.planning import add_plans
from wharfinger_api.preconditions import not_there
from wharfinger_api.present import Moment, Present
from wharfinger_api.problems import (
    MEDIA_TYPE,
    RETRY_AFTER_S,
    Problem,
    answer_problems,
    problem_of,
    request_id_of,
)
from wharfinger_api.recording import AccessRecorder, actor_of
from wharfinger_api.tokens import made_token, revoked, token_list
from wharfinger_api.watching import Watch
from wharfinger_api.webhook_delivery import WebhookDelivery
from wharfinger_api.webhooks import add_webhooks

VERSION = "v1"

BEHIND_POLL_S = 0.05
BODY_BYTES_MAX = 16_000_000
"""Of a request: as much as one fact of a cluster may have."""


# Dependencies are coroutines: FastAPI hands any other function to a thread, and waits for it.
async def _place(
    request: Request,
    at: Annotated[
        str,
        Query(
            description="As it was then: a time, an age such as 2h, a round such as fleet/0@12, or "
            "a position such as position:12.",
            max_length=200,
        ),
    ] = "",
    min_position: Annotated[
        int | None,
        Query(
            ge=0,
            lt=1 << 62,
            description="Answered when the feed has come so far: a reader sees its own writes.",
        ),
    ] = None,
) -> str:
    request.state.min_position = min_position
    return at


At = Annotated[str, Depends(_place)]
Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX, description="Items of one page.")]
After = Annotated[str, Query(max_length=65_536, description="What the page before gave as `next`.")]
Names = Annotated[list[str], Query(default_factory=none_given, max_length=100)]
Labels = Annotated[
    list[str],
    Query(
        default_factory=none_given,
        max_length=100,
        description="key=value, key!=value, key or !key; all of them.",
    ),
]
_KEYED: dict[str, Any] = {
    "parameters": [
        {
            "name": "Idempotency-Key",
            "in": "header",
            "required": False,
            "description": "The same request under the same key is carried out once in 24 hours.",
            "schema": {"type": "string", "maxLength": 200},
        }
    ]
}


_WATCHED_LIST: dict[str, Any] = {
    "tags": ["fleet"],
    "responses": {
        200: {"content": {SSE: {}}, "description": "A page; as server-sent events, a watch."}
    },
}


def _conditional(*headers: str) -> dict[str, Any]:
    said = "The `ETag` of what was seen, or `*`."
    return {
        "parameters": [
            {
                "name": name,
                "in": "header",
                "required": False,
                "description": said,
                "schema": {"type": "string", "maxLength": 200},
            }
            for name in headers
        ]
    }


_NO_CONTROLS = r"^[^\x00-\x1f\x7f]*$"
Namespace = Annotated[str, Path(max_length=253, pattern=_NO_CONTROLS)]
Name = Annotated[str, Path(max_length=253, pattern=_NO_CONTROLS)]


T = TypeVar("T")


@dataclass(slots=True)
class Api:
    """All that the routes need. `data` is read of the past of `past`; `identities` says who a
    credential is."""

    past: PastDatabase
    identities: Identities
    hub: Hub
    present: Present
    recorder: AccessRecorder
    limits: RequestLimits
    operations: Operations
    data_dir: FilePath | None = None
    """Of the plane, where it is on this machine."""

    webhooks: WebhookDelivery | None = None
    """None: there is no key to seal their secrets with."""

    behind_s: float = 5.0
    """How long a request waits for its `min_position`."""

    believed: BelievedSources = ALL_BELIEVED
    """Whose facts the services of the plane take in."""

    async def asked(self, request: Request, at: str = "", after: str = "") -> tuple[Asked, Any]:
        """The place in history of a request, and that of the page; the page's own place is None
        for the first one."""
        position = await self._reached(getattr(request.state, "min_position", None))
        if after:
            seqs, place = cursor_in(after)
            cut = await self.past.cut_by_seq(seqs)
        else:
            cut, place = await cut_of(self.past, at), None
        principal = request.state.principal
        if at or after:
            # a past may end before what was just read
            position = min(position, await self.past.position_of(cut))
        return Asked(request, principal, position, cut, self.past.at(cut)), place

    def still_valid(self, request: Request) -> Valid:
        """Whether the credential of the request still says the same."""
        credential = self.identities.credential(request.scope)
        asking: Principal = request.state.principal

        async def valid() -> bool:
            try:
                return bool(await self.identities.of(credential) == asking)
            except LedgerError:
                return True
            except Problem as problem:
                return problem.kind == "provider-away"

        return valid

    async def asked_now(self, request: Request) -> tuple[Answering, Moment]:
        """The present. The moment holds until the next `await`."""
        wanted = getattr(request.state, "min_position", None)
        if wanted is not None:
            await self._reached(wanted)
        moment = await self.present.now()
        return Answering(request, request.state.principal, moment.position), moment

    async def listed(
        self,
        page: Page,
        kind: lists.ListKind[T],
        select: Callable[[Sequence[T]], Sequence[T]],
        wanted: Mapping[str, Sequence[str]],
    ) -> Response:
        """One page of a list, or how many there are by group."""
        lists.checked_fields(page.fields, kind.members)
        if SSE in page.request.headers.get("accept", ""):
            return await self._watched(page, kind, select, wanted)
        answering: Answering
        seqs: Mapping[str, int]
        after = ""
        scope = f"{kind.name} {page.request.state.principal.scope}"
        if page.at or page.after:
            asked, place = await self.asked(page.request, page.at, page.after)
            if page.after and not isinstance(place, str):
                raise Problem(
                    "invalid", "after: expected what an earlier page of this list gave as next"
                )
            answering, seqs, after = asked, asked.cut.seqs, place or ""
            kept = self.present.kept(scope, seqs) if page.after else None
            found = kept if kept is not None else await kind.then(asked.ledger, asked.principal)
        else:
            answering, moment = await self.asked_now(page.request)
            seqs = moment.seqs
            found = kind.now(moment, answering.principal)
        selected = lists.selected(select, found)
        if answering.typed:
            return answering.value(list(selected), str)
        chosen = lists.chosen(selected, kind.values, wanted)
        if page.group_by:
            groups = lists.grouped(chosen, kind.values, page.group_by)
            return answering.answer({"groups": groups, "total": len(chosen)})
        items, last = lists.page_of(chosen, kind.key, page.limit, after)
        if page.fields:
            shown = b",".join(
                msgspec.json.encode(lists.with_fields(kind.plain(item), page.fields))
                for item in items
            )
        else:
            shown = b",".join(
                self.present.encoded(kind.name, kind.key(item), item, kind.plain) for item in items
            )
        further = b"null"
        if last:
            further = msgspec.json.encode(cursor_text(seqs, last))
            if not page.at:
                self.present.keep(scope, seqs, found)
        return answering.answer(
            b'{"items":[%s],"total":%d,"next":%s}' % (shown, len(chosen), further)
        )

    async def _watched(
        self,
        page: Page,
        kind: lists.ListKind[T],
        select: Callable[[Sequence[T]], Sequence[T]],
        wanted: Mapping[str, Sequence[str]],
    ) -> Response:
        if page.at or page.group_by:
            named = "at" if page.at else "group_by"
            raise Problem("invalid", f"{named}: a list of the past, or of groups, is not watched")
        lists.selected(select, [])  # a state or a label that cannot be

        def chosen(items: Sequence[T]) -> Sequence[T]:
            return lists.chosen(select(items), kind.values, wanted)

        after = page.request.headers.get("last-event-id") or page.after
        asked, moment = await self.asked_now(page.request)
        watch = Watch(
            self.present, kind, asked.principal, chosen, page.fields, self.still_valid(page.request)
        )
        return StreamedAnswer(watch.parts(after), moment.position, SSE)

    async def _reached(self, wanted: int | None) -> int:
        """The position of the feed, at least `wanted`. Problem: it has not come so far."""
        until = time.monotonic() + self.behind_s
        while True:
            position = (await feed.head(self.past.present)).position
            if wanted is None or position >= wanted:
                return position
            if time.monotonic() >= until:
                raise Problem(
                    "behind",
                    f"min_position: the feed is at {position}, {wanted} is still to come",
                    headers={"Retry-After": str(RETRY_AFTER_S)},
                )
            await asyncio.sleep(BEHIND_POLL_S)


@dataclass(frozen=True, slots=True)
class Page:
    """Which page of a list is asked for, and of what form."""

    request: Request
    at: str
    after: str
    limit: int
    fields: list[str]
    group_by: list[str]


def create(api: Api) -> FastAPI:
    """ValueError: a route has no rule."""
    authorised = _authorised(api)
    app = FastAPI(
        title="Wharfinger",
        version=VERSION,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        dependencies=[Depends(authorised), Depends(known_parameters)],
        responses={
            "default": {
                "description": "It could not be answered.",
                "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemBody"}}},
            }
        },
    )
    app.router.route_class = known_requests(authorised)
    answer_problems(app, _refusing(api))
    _plane(app, api)
    _fleet(app, api)
    _bindings(app, api)
    _decisions(app, api)
    _events(app, api)
    _changes(app, api)
    add_plans(app, api, _KEYED)
    add_webhooks(app, api)
    _tokens(app, api)
    _access(app, api)
    check_table(app)
    app.add_middleware(_Edge)
    return app


def document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document."""
    if app.openapi_schema is None:
        found = get_openapi(
            title="Wharfinger",
            version=VERSION,
            openapi_version="3.1.0",
            description="An event-sourced placement control plane for fleets of Kubernetes "
            "clusters.",
            routes=app.routes,
        )
        components = found.setdefault("components", {})
        components.setdefault("schemas", {})["ProblemBody"] = ProblemBody.model_json_schema(
            ref_template="#/components/schemas/{model}"
        )
        components["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
        found["security"] = [{"bearer": []}]
        for path, methods in found["paths"].items():
            for method, operation in methods.items():
                rule = RULES[method.upper(), path]
                operation["x-roles"] = sorted(rule.roles)
                operation["x-namespaced"] = rule.within
                if not rule.roles:
                    operation["security"] = []
        app.openapi_schema = found
    return app.openapi_schema


def _authorised(api: Api) -> Callable[[Request], Awaitable[None]]:
    async def authorised(request: Request) -> None:
        rule = RULES[request.method, request.scope["route"].path]
        principal = None
        if rule.roles:
            credential = api.identities.credential(request.scope)
            principal = await api.identities.of(credential)
        request.state.principal = principal
        if principal is not None:
            api.limits.take(principal.name)
        allowed(request.method, request.scope["route"].path, principal)
        if rule.recorded:
            await _recorded(api, _access_of(request, "allowed"))

    return authorised


async def _recorded(api: Api, access: Access) -> None:
    """Problem: it is not, so nothing may be carried out."""
    try:
        await api.recorder.allowed(access)
    except LedgerError as error:
        raise Problem(
            "away",
            f"the access could not be recorded: {error}",
            headers={"Retry-After": str(RETRY_AFTER_S)},
        ) from error


def _refusing(api: Api) -> Callable[[Request, Problem], None]:
    def refused(request: Request, problem: Problem) -> None:
        access = _access_of(request, "refused", problem.refusal)
        api.recorder.refused(access, "hidden" if problem.hidden else problem.kind)

    return refused


def _access_of(
    request: Request, outcome: Outcome, reason: str = "", principal: Principal | None = None
) -> Access:
    """`principal`: who it turned out to be, where the request has no credential."""
    route = getattr(request.scope.get("route"), "path", "")
    return Access(
        actor_of(principal or getattr(request.state, "principal", None)),
        f"{request.method} {route}",
        request.url.path,
        outcome,
        reason,
        request_id_of(request),
    )


class _Edge:
    """Gives every request an id, counts it, and turns what no handler saw into a problem."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = scope["wharfinger.request_id"] = str(uuid4())
        began = time.perf_counter()
        status = 0
        size = 0

        async def bounded() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > BODY_BYTES_MAX:
                # of this kind, because FastAPI makes a 400 of any other
                raise HTTPException(413, f"body: expected at most {BODY_BYTES_MAX:,} bytes")
            return message

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [
                    *message.get("headers", []),
                    (b"x-request-id", request_id.encode()),
                    (b"x-content-type-options", b"nosniff"),
                ]
            await send(message)

        try:
            await self._app(scope, bounded, answer)
        except Exception as error:
            if status:
                raise
            await problem_of(error).response(request_id)(scope, receive, answer)
        finally:
            route = getattr(scope.get("route"), "path", "none")
            REQUESTS.labels(route, scope["method"][:8], str(status)).inc()
            REQUEST_SECONDS.labels(route).observe(time.perf_counter() - began)


# --- the plane itself


def _plane(app: FastAPI, api: Api) -> None:
    @app.get("/healthz", tags=["plane"])
    async def healthz() -> dict[str, bool]:
        """Whether the process is alive."""
        return {"alive": True}

    @app.get("/readyz", tags=["plane"])
    async def readyz() -> Response:
        """Whether the process can answer: the database is there."""
        why = ""
        try:
            await api.past.heads()
        except LedgerError as error:
            why = str(error)
        report = {"ready": not why, "lag": 0, "failed": "", "stalled_s": 0.0, "oldest_s": 0.0}
        body = {"ready": not why, "services": {"api": report}}
        return Response(
            msgspec.json.encode(body), 503 if why else 200, media_type="application/json"
        )

    @app.get("/metrics", tags=["plane"], response_class=Response)
    async def metrics() -> Response:
        """The figures of this process, as Prometheus reads them."""
        from wharfinger.runtime.observability import METRICS

        return Response(generate_latest(METRICS.registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/v1/openapi.json", tags=["plane"])
    async def openapi() -> dict[str, Any]:
        """This document."""
        return document(app)

    @app.get("/v1/status", tags=["plane"], response_model=StatusBody)
    async def status(request: Request) -> Response:
        """The plane this moment: its processes and services, and where every stream stands."""
        if api.data_dir is None:
            raise Problem("not-found", "this server is not on the machine of a plane")
        try:
            found = await status_of(Ledger(api.past.present), api.data_dir.absolute())
        except (NoPlaneError, PlaneError) as error:
            raise Problem("not-found", str(error)) from None
        found = without_password(found)
        if typed.MEDIA_TYPE in request.headers.get("accept", ""):
            return Response(typed.encoded(found), 200, _NOT_KEPT, typed.MEDIA_TYPE)
        return Response(
            msgspec.json.encode(status_plain(found)), 200, _NOT_KEPT, "application/json"
        )

    @app.get("/v1/streams", tags=["plane"], response_model=StreamsBody)
    async def streams(request: Request, at: At) -> Response:
        """Where every stream stands."""
        asked, _ = await api.asked(request, at)
        return asked.answer(
            {
                "items": [
                    {
                        "stream": head.stream,
                        "round": head.round,
                        "seq": head.seq,
                        "time": as_time(head.at) if head.at else None,
                    }
                    for head in await asked.ledger.heads()
                ]
            }
        )


# --- the fleet


def _fleet(app: FastAPI, api: Api) -> None:
    @app.get("/v1/bindings", response_model=PageBody[BindingBody], **_WATCHED_LIST)
    async def bindings(
        request: Request,
        namespace: Names,
        binding: Names,
        cluster: Names,
        policy: Names,
        outcome: Names,
        state: Names,
        label: Labels,
        fields: Names,
        group_by: Names,
        at: At,
        limit: Limit = 100,
        after: After = "",
    ) -> Response:
        """Bindings, and where they are."""
        return await api.listed(
            Page(request, at, after, limit, fields, group_by),
            lists.BINDINGS,
            ListSelection(namespace, cluster, policy, state, label).bindings,
            {"binding": binding, "outcome": outcome},
        )

    @app.get("/v1/clusters", response_model=PageBody[ClusterBody], **_WATCHED_LIST)
    async def clusters(
        request: Request,
        cluster: Names,
        provider: Names,
        region: Names,
        state: Names,
        label: Labels,
        fields: Names,
        group_by: Names,
        at: At,
        limit: Limit = 100,
        after: After = "",
    ) -> Response:
        """Member clusters: what is known of them, and whether they are silent."""
        return await api.listed(
            Page(request, at, after, limit, fields, group_by),
            lists.CLUSTERS,
            ListSelection((), cluster, (), state, label).cluster_list,
            {"provider": provider, "region": region},
        )

    @app.get("/v1/nodes", response_model=PageBody[NodeBody], **_WATCHED_LIST)
    async def nodes(
        request: Request,
        cluster: Names,
        node: Names,
        state: Names,
        label: Labels,
        fields: Names,
        group_by: Names,
        at: At,
        limit: Limit = 100,
        after: After = "",
    ) -> Response:
        """Nodes of all clusters, with the number of replicas on each."""
        return await api.listed(
            Page(request, at, after, limit, fields, group_by),
            lists.NODES,
            ListSelection((), cluster, (), state, label).nodes,
            {"node": node},
        )

    @app.get("/v1/policies", response_model=PageBody[PolicyBody], **_WATCHED_LIST)
    async def policies(
        request: Request,
        namespace: Names,
        policy: Names,
        kind: Names,
        fields: Names,
        group_by: Names,
        at: At,
        limit: Limit = 100,
        after: After = "",
    ) -> Response:
        """Policies, with the number of bindings that each places."""
        return await api.listed(
            Page(request, at, after, limit, fields, group_by),
            lists.POLICIES,
            ListSelection(namespace, (), policy).policy_list,
            {"kind": kind},
        )

    @app.get("/v1/policies/{kind}/{namespace}/{name}", tags=["fleet"], response_model=OnePolicyBody)
    async def one_of_the_policies(
        request: Request, kind: Name, namespace: Namespace, name: Name, at: At
    ) -> Response:
        """One policy, whose `ETag` `PUT` and `DELETE` need. `-` as its namespace: it has none."""
        asked, _ = await api.asked(request, at)
        return await one_policy.get(asked, one_policy.named(kind, namespace, name))


# --- one binding


def _bindings(app: FastAPI, api: Api) -> None:
    prefix = "/v1/bindings/{namespace}/{name}"

    async def known(request: Request, namespace: str, name: str, at: str) -> tuple[Asked, str]:
        """Problem: there is no such binding, or it is not theirs, which is not told apart."""
        asked, _ = await api.asked(request, at)
        full = f"{namespace}/{name}"
        if asked.principal.sees(full) and await causality.decided_about(
            asked.ledger.database, full, ""
        ):
            return asked, full
        raise missing(full, asked.principal)

    def missing(full: str, principal: Principal) -> Problem:
        hidden = "" if principal.sees(full) else "needs a grant for that namespace"
        return Problem("not-found", f"no binding is named {full[:300]}", hidden=hidden)

    @app.get(prefix, tags=["bindings"], response_model=BindingBody)
    async def binding(request: Request, namespace: Namespace, name: Name, at: At) -> Response:
        """One binding: what it asks for, and where it is."""
        full = f"{namespace}/{name}"
        answering: Answering
        if at:
            answering, _ = asked, _ = await known(request, namespace, name, at)
            found = await facts.binding_now(asked.ledger, full)
        else:
            answering, moment = await api.asked_now(request)
            found = moment.view.binding(full) if answering.principal.sees(full) else None
        if found is None:
            raise missing(full, answering.principal)
        if at or answering.typed:
            return answering.value(found, facts.binding_plain)
        kind = lists.BINDINGS
        return answering.answer(api.present.encoded(kind.name, full, found, kind.plain))

    @app.get(f"{prefix}/history", tags=["bindings"], response_model=BindingHistory)
    async def binding_history(
        request: Request, namespace: Namespace, name: Name, at: At, limit: Limit = 50
    ) -> Response:
        """Every decision about it, with what caused each."""
        asked, full = await known(request, namespace, name, at)
        return asked.value(await timeline(asked.ledger, full, limit), history_plain)

    @app.get(f"{prefix}/lineage", tags=["bindings"], response_model=LineageGraph)
    async def binding_lineage(
        request: Request, namespace: Namespace, name: Name, at: At
    ) -> Response:
        """What led to its latest decisions, and what they led to."""
        asked, full = await known(request, namespace, name, at)
        found = await lineage_of_binding(asked.ledger, full)
        if not asked.principal.everywhere:
            found = lineage_within(found, asked.principal.sees)
        return asked.value(found, lineage_plain)

    @app.get(f"{prefix}/explain", tags=["bindings"], response_model=ExplanationBody)
    async def binding_explain(
        request: Request,
        namespace: Namespace,
        name: Name,
        at: At,
        decision: UUID | None = None,
        every: bool = False,
    ) -> Response:
        """Why it is where it is, why not elsewhere, and what would let it in there."""
        asked, full = await known(request, namespace, name, at)
        # All stages and numpy: a quarter of the memory of this process, loaded when first needed.
        await asyncio.to_thread(import_module, "wharfinger.answers.explanation")
        from wharfinger.answers.explanation import account_plain
        from wharfinger.history.explain import account

        found = await account(asked.ledger, full, None, decision, every)
        return asked.value(found, account_plain)


# --- decisions


def _decisions(app: FastAPI, api: Api) -> None:
    @app.get("/v1/decisions", tags=["decisions"], response_model=PageBody[DecisionBody])
    async def decisions(
        request: Request,
        namespace: Names,
        binding: Names,
        type: Names,
        outcome: Names,
        at: At,
        stream: Annotated[str, Query(max_length=253)] = "",
        since: Annotated[str, Query(max_length=64)] = "",
        until: Annotated[str, Query(max_length=64)] = "",
        limit: Limit = 100,
        after: After = "",
    ) -> Response:
        """Decisions of all streams, in order of time. What was accepted is in `stream=intake`."""
        asked, place = await api.asked(request, at, after)
        namespaces = own_namespaces(asked.principal, namespace)
        if place is not None and not _is_cursor(place):
            raise Problem(
                "invalid", "after: expected what an earlier page of this list gave as next"
            )
        seqs: dict[str, int] = dict(place or {})
        query = DecisionQuery(
            stream,
            since=moment_in("since", since),
            until=moment_in("until", until),
            types=type or (() if stream == INTAKE else TYPES),
            outcomes=outcome,
            subjects=binding,
            namespaces=namespaces,
            after=seqs,
            limit=limit + 1,
        )
        rows = [row async for row in asked.ledger.decisions(query)]
        for row in rows[:limit]:
            seqs[row.stream] = row.seq
        shown = b",".join(as_line(row).encode() for row in rows[:limit])
        following = cursor_text(asked.cut.seqs, seqs) if len(rows) > limit else None
        tail = msgspec.json.encode(following)
        return asked.answer(b'{"items":[' + shown + b'],"next":' + tail + b"}")

    @app.get("/v1/decisions/{decision}", tags=["decisions"], response_model=DecisionBody)
    async def one_decision(request: Request, decision: UUID, at: At) -> Response:
        """One decision, as it was recorded."""
        asked, _ = await api.asked(request, at)
        row = await asked.ledger.decision(decision)
        if row is None or not asked.principal.sees(row.subject):
            raise Problem(
                "not-found",
                f"no decision has the id {decision}",
                hidden="" if row is None else "needs a grant for its namespace",
            )
        return asked.answer(as_line(row).encode())


def _is_cursor(place: object) -> bool:
    return isinstance(place, dict) and all(
        isinstance(seq, int) and not isinstance(seq, bool) and 0 <= seq < 1 << 62
        for seq in place.values()
    )


# --- events


def _events(app: FastAPI, api: Api) -> None:
    @app.get(
        "/v1/events",
        tags=["events"],
        responses={200: {"content": {SSE: {}, LINES: {}, BATCH: {}}}},
        response_class=Response,
    )
    async def events(
        request: Request,
        type: Names,
        namespace: Names,
        binding: Names,
        cluster: Names,
        stream: Names,
        outcome: Names,
        facts: bool = False,
        after: Annotated[
            str, Query(max_length=64, description="A position, `earliest`, `latest`, or a time.")
        ] = "latest",
        limit: Annotated[int | None, Query(ge=1, le=5000)] = None,
        wait: Annotated[float, Query(ge=0, le=30)] = 0,
    ) -> Response:
        """Decisions as CloudEvents, from a position on: as server-sent events
        (`text/event-stream`), as lines (`application/x-ndjson`), else as one batch."""
        namespaces = own_namespaces(request.state.principal, namespace)
        wanted = FeedFilter(
            types=_sorted(type),
            namespaces=_sorted(namespaces),
            bindings=_sorted(binding),
            clusters=_sorted(cluster),
            streams=_sorted(stream),
            outcomes=_sorted(outcome),
            facts=facts,
        )
        start = request.headers.get("last-event-id") or after
        position = await start_position(api.past, start)
        accept = request.headers.get("accept", "")
        if SSE in accept or LINES in accept:
            head = await feed.head(api.past.present)
            valid = api.still_valid(request)
            return event_stream(
                api.hub, wanted, position, head, valid, lines=LINES in accept, limit=limit
            )
        size = limit or 100
        frames, through = await batch(api.hub, wanted, position, size, wait)
        return Response(
            b"[" + b",".join(frame.event for frame in frames) + b"]",
            headers={"Wharfinger-Position": str(through), "Cache-Control": "no-store"},
            media_type=BATCH,
        )


def _sorted(names: list[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names)))


# --- what is changed


def _changes(app: FastAPI, api: Api) -> None:
    def said(model: type) -> dict[int | str, dict[str, Any]]:
        return {200: {"model": model, "description": "What came of it."}}

    @app.post("/v1/apply", tags=["changes"], responses=said(ChangesBody), openapi_extra=_KEYED)
    async def apply(request: Request, body: ApplyBody) -> Response:
        """Accept manifests, and facts, all or nothing. The same again changes nothing."""
        database = api.past.present

        async def work() -> Response:
            return await changed(database, request, body, compiled)

        return await once(database, request, work)

    @app.post("/v1/delete", tags=["changes"], responses=said(ChangesBody), openapi_extra=_KEYED)
    async def delete(request: Request, body: ManifestsBody) -> Response:
        """Withdraw what the manifests name, all or nothing."""
        database = api.past.present

        async def work() -> Response:
            return await changed(database, request, body, compiled_away)

        return await once(database, request, work)

    done: dict[int | str, dict[str, Any]] = said(UpkeepBody)

    async def kept_up_once(
        request: Request, body: ScaleBody | DrainBody, make: MakeFact
    ) -> Response:
        async def work() -> Response:
            return await kept_up(api.past.present, request, body.reason, body.revision, make)

        return await once(api.past.present, request, work)

    @app.post(
        "/v1/bindings/{namespace}/{name}/scale",
        tags=["changes"],
        responses=done,
        openapi_extra=_KEYED,
    )
    async def scale(
        request: Request, namespace: Namespace, name: Name, body: ScaleBody
    ) -> Response:
        """Ask for another number of replicas of a binding."""
        principal: Principal = request.state.principal
        full = f"{namespace}/{name}"
        mine = principal.changes(namespace)

        def make(known: LatestFacts) -> Accepted:
            if not mine or all(spec.name != full for spec in known.bindings):
                raise not_there("binding", full, mine)
            return scaled(known, full, body.replicas)

        return await kept_up_once(request, body, make)

    one = "/v1/bindings/{namespace}/{name}"

    @app.put(
        one,
        tags=["changes"],
        responses=said(ChangesBody),
        openapi_extra=_conditional("If-Match", "If-None-Match"),
    )
    async def put_binding(
        request: Request, namespace: Namespace, name: Name, body: OneManifestBody
    ) -> Response:
        """Request one binding by its manifest: a new one with `If-None-Match: *`, else the one that
        was seen."""
        return await one_binding.put(api.past.present, request, f"{namespace}/{name}", body)

    @app.delete(one, tags=["changes"], responses=done, openapi_extra=_conditional("If-Match"))
    async def delete_binding(
        request: Request,
        namespace: Namespace,
        name: Name,
        reason: Annotated[str, Query(max_length=500)] = "",
        revision: Annotated[str, Query(max_length=500)] = "",
    ) -> Response:
        """Withdraw the binding that was seen."""
        full = f"{namespace}/{name}"
        return await one_binding.delete(api.past.present, request, full, reason, revision)

    policy = "/v1/policies/{kind}/{namespace}/{name}"

    @app.put(
        policy,
        tags=["changes"],
        responses=said(ChangesBody),
        openapi_extra=_conditional("If-Match", "If-None-Match"),
    )
    async def put_policy(
        request: Request, kind: Name, namespace: Namespace, name: Name, body: OneManifestBody
    ) -> Response:
        """Apply one policy by its manifest: a new one with `If-None-Match: *`, else the one that
        was seen. `-` as its namespace: it has none."""
        policy = one_policy.named(kind, namespace, name)
        return await one_policy.put(api.past.present, request, policy, body)

    @app.delete(
        policy,
        tags=["changes"],
        responses=said(ChangesBody),
        openapi_extra=_conditional("If-Match"),
    )
    async def delete_policy(
        request: Request,
        kind: Name,
        namespace: Namespace,
        name: Name,
        reason: Annotated[str, Query(max_length=500)] = "",
        revision: Annotated[str, Query(max_length=500)] = "",
    ) -> Response:
        """Remove the policy that was seen. Its bindings go to the next one that selects them, or
        stay as they are."""
        policy = one_policy.named(kind, namespace, name)
        return await one_policy.delete(api.past.present, request, policy, reason, revision)

    @app.post("/v1/drain", tags=["changes"], responses=done, openapi_extra=_KEYED)
    async def drain(request: Request, body: DrainBody) -> Response:
        """Let nothing new into a cluster or onto a node, and move away what is there."""
        return await kept_up_once(request, body, lambda known: drained(known, body.what))

    @app.post("/v1/undrain", tags=["changes"], responses=done, openapi_extra=_KEYED)
    async def undrain(request: Request, body: DrainBody) -> Response:
        """Use a cluster or node again."""
        return await kept_up_once(request, body, lambda known: undrained(known, body.what))

    @app.post("/v1/barrier", tags=["changes"], responses=said(BarrierReportBody))
    async def barrier(
        request: Request,
        body: BarrierBody,
        wait: Annotated[float, Query(ge=0, le=30, description="Seconds until it answers.")] = 0,
    ) -> Response:
        """Wait until what was changed is decided, published or placed. Changes nothing."""
        return await waited(api.past.present, request, body, wait)

    @app.post("/v1/facts", tags=["changes"], responses=said(FactsAccepted), openapi_extra=_KEYED)
    async def post_facts(request: Request, body: FactsBody) -> Response:
        """Tell facts of sources that the token names, all or nothing; durable when answered."""
        database = api.past.present

        async def work() -> Response:
            return await posted(database, request, body, api.believed)

        return await once(database, request, work)


# --- who asks


def _tokens(app: FastAPI, api: Api) -> None:
    @app.get("/v1/whoami", tags=["access"], response_model=WhoBody)
    async def whoami(request: Request) -> Response:
        """Who the credential of this request is, and what it may do."""
        principal: Principal = request.state.principal
        body = {
            "type": principal.type,
            "id": principal.id,
            "roles": sorted(principal.roles),
            "namespaces": sorted(principal.namespaces),
        }
        return Response(
            msgspec.json.encode(body),
            headers={"Cache-Control": "no-store"},
            media_type="application/json",
        )

    @app.post("/v1/login", tags=["access"], response_model=SecretBody)
    async def login(request: Request, body: LoginBody) -> Response:
        """Exchange a code that is good once for a token."""
        found = await api.identities.exchange(body.code)
        if found is None:
            raise Problem("unauthenticated", "code: expected one that was not used before")
        await _recorded(api, _access_of(request, "allowed", principal=principal_of(found[1])))
        return _secret(*found)

    @app.get("/v1/tokens", tags=["access"], response_model=TokenList)
    async def list_tokens(request: Request) -> Response:
        """The tokens that the caller has made; of an admin, all of them."""
        principal: Principal = request.state.principal
        return _private({"items": await token_list(api.past.present, principal)})

    @app.post("/v1/tokens", tags=["access"], response_model=SecretBody, status_code=201)
    async def new_token(request: Request, body: NewToken) -> Response:
        """Make a token with rights that the caller has. Its secret is shown this once."""
        principal: Principal = request.state.principal
        secret, token = await made_token(api.past.present, principal, body)
        made = f"{request.url.path}/{token.id} {token.name}: {', '.join(token.roles)}"
        # who has given which right, before anyone can use it
        await _recorded(api, msgspec.structs.replace(_access_of(request, "allowed"), target=made))
        return _secret(secret, token, status=201)

    @app.delete("/v1/tokens/{token}", tags=["access"], status_code=204)
    async def delete_token(request: Request, token: UUID) -> Response:
        """Revoke a token. It is refused from the next request on."""
        principal: Principal = request.state.principal
        await revoked(api.past.present, principal, token)
        api.identities.forget()
        return Response(status_code=204)


# --- who asked


def _access(app: FastAPI, api: Api) -> None:
    @app.get("/v1/access", tags=["access"], response_model=AccessPage)
    async def access(
        request: Request,
        actor: Names,
        outcome: Names,
        since: Annotated[str, Query(max_length=64)] = "",
        until: Annotated[str, Query(max_length=64)] = "",
        limit: Limit = 100,
        after: Annotated[str, Query(max_length=20, pattern="^[0-9]*$")] = "",
    ) -> Response:
        """Who wrote, was refused, or read what belongs to others; the newest first."""
        query = AccessQuery(
            tuple(actor),
            tuple(outcome),
            moment_in("since", since) or 0,
            moment_in("until", until) or 0,
            min(int(after or 0), (1 << 62) - 1),
            limit + 1,
        )
        found = await access_records(api.past.present, query)
        shown, more = found[:limit], len(found) > limit
        if typed.MEDIA_TYPE in request.headers.get("accept", ""):
            return Response(typed.encoded(shown), 200, _NOT_KEPT, typed.MEDIA_TYPE)
        return _private(
            {
                "items": [access_plain(record) for record in shown],
                "next": str(shown[-1].seq) if more else None,
            }
        )


_NOT_KEPT = {"Cache-Control": "no-store"}


def _secret(secret: str, token: Any, status: int = 200) -> Response:
    return _private(
        {
            "id": str(token.id),
            "secret": secret,
            "name": token.name,
            "roles": list(token.roles),
            "namespaces": list(token.namespaces),
            "expires": as_time(token.expires_at) if token.expires_at else None,
        },
        status,
    )


def _private(body: object, status: int = 200) -> Response:
    return Response(
        msgspec.json.encode(body), status, {"Cache-Control": "no-store"}, "application/json"
    )
