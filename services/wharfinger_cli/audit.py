"""`audit`: is the history as it was written?"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from wharfinger.runtime.ledger import FirstBad, VerifyResult, audit_verify
from wharfinger_cli.app import Request
from wharfinger_cli.connection import opened_ledger, run, settings_of
from wharfinger_cli.failures import DIFFERENCE, NotFoundError
from wharfinger_cli.output import BAD, GOOD, Plain, count, messages, new_table, show


def verify(request: Request, stream: str) -> None:
    result = run(_verify(request, stream))
    show(request.format, verified_plain(result), (), lambda: verified_page(result))
    if not result.ok:
        raise SystemExit(DIFFERENCE)


async def _verify(request: Request, stream: str) -> VerifyResult:
    async with opened_ledger(settings_of(request)) as ledger:
        with messages().status("walking the chains"):
            result = await audit_verify(ledger, stream)
    if stream and not result.streams and result.ok:
        raise NotFoundError(f"no stream is named {stream} or begins with it")
    return result


def verified_plain(result: VerifyResult) -> Plain:
    return {
        "ok": result.ok,
        "streams": result.streams,
        "rounds": result.rounds,
        "rows": result.rows,
        "seconds": round(result.seconds, 3),
        "rows_per_s": round(result.rows_per_s),
        "first_bad": None if result.first_bad is None else _bad_plain(result.first_bad),
    }


def _bad_plain(bad: FirstBad) -> Plain:
    return {
        "stream": bad.stream, "round": bad.round, "place": bad.place, "what": bad.what, "expected": bad.expected,
        "found": bad.found,
    }  # fmt: skip


def verified_page(result: VerifyResult) -> Iterator[RenderableType]:
    verdict = Text("the history is whole", GOOD) if result.ok else Text("the history was changed", BAD)
    walked = f": {count(result.rounds, 'round')} of {count(result.streams, 'stream')}, {count(result.rows, 'row')}"
    yield verdict.append(f"{walked} in {result.seconds:.1f} s", "default")
    if result.first_bad is not None:
        bad = result.first_bad
        table = new_table("first bad row", "")
        for name, value in _bad_plain(bad).items():
            table.add_row(name, str(value))
        yield table
