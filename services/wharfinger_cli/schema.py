"""`schema export`: the contract as files for other programs."""

from __future__ import annotations

import sys
from pathlib import Path

from wharfinger.events import schema
from wharfinger_cli.failures import CommandError
from wharfinger_cli.output import messages


def export(directory: Path) -> None:
    try:
        schema.write(directory)
    except OSError as error:
        raise CommandError(f"{directory}: {error.strerror or error}") from error
    messages().print(f"schemas and asyncapi.json are in {directory}")


def print_kinds() -> None:
    from wharfinger.events.kinds_page import kinds_markdown  # models, which `export` does not need

    sys.stdout.write(kinds_markdown())
