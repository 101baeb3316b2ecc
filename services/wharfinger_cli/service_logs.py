"""`logs`: what the services of a plane on this machine have written."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path

from wharfinger.runtime.children import ONE
from wharfinger.runtime.database_location import reach_of
from wharfinger_cli.failures import CommandError, NotFoundError
from wharfinger_cli.output import write
from wharfinger_cli.request import Request

LOOK_S = 0.2
DECIDING = (ONE, "scheduler")
"""The process that decides is one of these: the layout of the plane says which."""


def logs(request: Request, process: str | None, lines: int, *, follow: bool) -> None:
    """`process`: as `status` names it; None: the one that decides. Of an earlier, longer life
    nothing is shown."""
    folder = reach_of(request.data_dir).data_dir / "log"
    names = sorted(path.stem for path in folder.glob("*.log"))
    if not names:
        raise CommandError(f"{folder}: there are no logs; a plane that `up` started has them there")
    if process is None:
        # the plane may have had another layout before
        found = [path for name in DECIDING if (path := folder / f"{name}.log").exists()]
        process = max(found, key=lambda path: path.stat().st_mtime).stem if found else ONE
    if process not in names:
        raise NotFoundError(f"no log of {process}; expected one of {', '.join(names)}")
    _show(folder / f"{process}.log", lines, follow=follow)


def _show(path: Path, lines: int, *, follow: bool) -> None:
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in deque(file, maxlen=lines):
            write(line)
        while follow:
            line = file.readline()
            if line:
                write(line)
            else:
                time.sleep(LOOK_S)
