"""`schema export`: the contract as files for other programs."""

from __future__ import annotations

from pathlib import Path

from wharfinger.events import schema
from wharfinger.events.kinds_page import kinds_markdown
from wharfinger_cli.failures import CommandError
from wharfinger_cli.output import messages


def export(directory: Path) -> None:
    try:
        schema.write(directory)
        (directory / "kinds.md").write_text(kinds_markdown(), encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{directory}: {error.strerror or error}") from error
    messages().print(f"schemas, asyncapi.json and kinds.md are in {directory}")
