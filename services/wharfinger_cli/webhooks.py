"""`webhooks`: subscriptions whose events the HTTP API sends to a URL. Over `--server` only: the API
seals their secrets and sends them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from wharfinger_cli.failures import CommandError, NotFoundError
from wharfinger_cli.output import DARK, WARN, new_table, show, show_list
from wharfinger_cli.remote import Remote
from wharfinger_cli.request import Request
from wharfinger_cli.tokens import write_secret

ROOT = "/v1/webhooks"
PAGE = 1000


def create(
    request: Request,
    name: str,
    url: str,
    wanted: Mapping[str, object],
    order: str,
    after: str,
    out: Path | None,
) -> None:
    """`wanted`: the filter, as the API has it."""
    body = {"name": name, "url": url, "filter": wanted, "order": order, "after": after}
    _show_secret(request, _remote(request).send("POST", ROOT, body), out)


def rotate(request: Request, named: str, out: Path | None) -> None:
    remote = _remote(request)
    found = _found(remote, named)
    _show_secret(request, remote.send("POST", _path(found, "rotate"), None, _seen(found)), out)


def list_webhooks(request: Request) -> None:
    found = _remote(request).get(ROOT)["items"]
    names = [one["id"] for one in found]
    show_list(request.format, found, names, lambda: _table(found), "no webhooks")


def pause(request: Request, named: str, *, paused: bool) -> None:
    remote = _remote(request)
    found = _found(remote, named)
    same = {name: found[name] for name in ("name", "url", "filter", "order")}
    changed = remote.send("PUT", _path(found), {**same, "paused": paused}, _seen(found))
    _show(request, changed)


def delete(request: Request, named: str) -> None:
    remote = _remote(request)
    found = _found(remote, named)
    remote.send("DELETE", _path(found), None, _seen(found))
    show(
        request.format, {"deleted": found["id"]}, [found["id"]], lambda: [f"{found['name']}: gone"]
    )


def redeliver(request: Request, named: str, after: str, dead: bool, sequence: int | None) -> None:
    if sum([bool(after), dead, sequence is not None]) != 1:
        raise CommandError("webhooks redeliver: expected one of --after, --dead and --sequence")
    remote = _remote(request)
    found = _found(remote, named)
    body = {"after": after or None, "dead": dead, "sequence": sequence}
    answer = remote.send("POST", _path(found, "redeliver"), body)

    def page() -> Iterator[RenderableType]:
        if after:
            yield f"{found['name']}: again from beyond position {answer['webhook']['position']}"
        else:
            yield f"{found['name']}: {answer['count']} dead letters are tried again"

    show(request.format, answer, [found["id"]], page)


def deliveries(request: Request, named: str, states: Sequence[str], limit: int) -> None:
    remote = _remote(request)
    path = _path(_found(remote, named), "deliveries")
    items: list[dict[str, Any]] = []
    after = ""
    while len(items) < limit:
        size = min(PAGE, limit - len(items))
        answer = remote.get(path, state=list(states), limit=size, after=after)
        items += answer["items"]
        after = answer["next"] or ""
        if not after:
            break
    names = [str(one["sequence"]) for one in items]
    show_list(request.format, items, names, lambda: _delivery_table(items), "no deliveries")


def _remote(request: Request) -> Remote:
    if not request.server:
        raise CommandError(
            "webhooks: expected --server URL and --token-file FILE: the HTTP API sends them"
        )
    return Remote.of(request)


def _found(remote: Remote, named: str) -> Any:
    """By its name or id. NotFoundError: none has it. CommandError: several have it."""
    found = [one for one in remote.get(ROOT)["items"] if named in (one["name"], one["id"])]
    if not found:
        raise NotFoundError(f"no webhook has the name or id {named}")
    if len(found) > 1:
        ids = ", ".join(one["id"] for one in found)
        raise CommandError(f"{named}: several webhooks have this name: {ids}")
    return found[0]


def _path(found: Mapping[str, Any], *more: str) -> str:
    return "/".join([ROOT, quote(str(found["id"]), safe=""), *more])


def _seen(found: Mapping[str, Any]) -> dict[str, str]:
    return {"If-Match": found["etag"]}


def _show_secret(request: Request, found: Mapping[str, Any], out: Path | None) -> None:
    shown = dict(found)
    if out is not None:
        write_secret(out, shown.pop("secret"))

    def page() -> Iterator[RenderableType]:
        yield from _page(found)
        yield f"the secret is in {out}" if out is not None else str(found["secret"])

    show(request.format, shown, [found["id"]], page)


def _show(request: Request, found: Mapping[str, Any]) -> None:
    show(request.format, dict(found), [found["id"]], lambda: _page(found))


def _page(found: Mapping[str, Any]) -> Iterator[RenderableType]:
    where = f"  {found['url']}; {found['state']}, after position {found['position']}"
    yield Text(found["name"], "bold").append(where, DARK)


def _table(found: Sequence[Mapping[str, Any]]) -> Table:
    right = ("position", "waiting", "delivered", "dead")
    table = new_table(
        "name", "id", "url", "state", "position", "waiting", "delivered", "dead", "why", right=right
    )
    for one in found:
        counts = one["deliveries"]
        table.add_row(
            one["name"],
            Text(one["id"], DARK),
            one["url"],
            Text(one["state"], "" if one["state"] == "active" else WARN),
            str(one["position"]),
            *(str(counts[state]) for state in ("waiting", "delivered", "dead")),
            one["why"],
        )
    return table


def _delivery_table(found: Sequence[Mapping[str, Any]]) -> Table:
    names = ("sequence", "position", "about", "state", "tries", "changed", "answer", "why")
    table = new_table(*names, right=("sequence", "position", "tries"))
    for one in found:
        table.add_row(
            str(one["sequence"]),
            str(one["position"]),
            one["key"],
            Text(one["state"], WARN if one["state"] == "dead" else ""),
            str(one["tries"]),
            one["changed"],
            str(one["status"] or ""),
            one["error"],
        )
    return table
