"""What every command is called with: the data directory and the output format."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from wharfinger_cli.output import Format


@dataclass(frozen=True, slots=True)
class Request:
    """The options that all commands share. `data_dir` None: from the environment, or the
    default. `server`: the URL of an HTTP API that is asked instead of the database, with the token
    in `token_file`. `reason`, `revision`: recorded with what is changed. `wide`: more
    columns of a table; `format` is `table` then."""

    data_dir: Path | None
    format: Format
    server: str = ""
    token_file: Path | None = None
    reason: str = ""
    revision: str = ""
    wide: bool = False

    @property
    def flags(self) -> dict[str, object]:
        return {} if self.data_dir is None else {"data_dir": self.data_dir}
