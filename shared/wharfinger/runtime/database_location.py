"""Where the plane's database is, for programs that read it and need no other setting.

Making all settings loads pydantic, which costs such a program as much processor time as its answer.
So this looks where `settings.load_settings` looks (flag, environment, running plane, default), and
answers only where nothing that it does not know can change the answer: no variable of ours but
those it reads is set, and what it found is valid. Everywhere else it leaves the answer to
`load_settings`, where every setting is defined and every error is worded.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from wharfinger.runtime.backends import CAPABILITIES, async_database_url, checked_bootstrap
from wharfinger.runtime.deadlines import Deadlines
from wharfinger.runtime.plane import DEFAULT_DATA_DIR, ENV_PREFIX, Plane, PlaneError, read_plane

DATA_DIR, KAFKA, DATABASE = (f"{ENV_PREFIX}{name}" for name in ("DATA_DIR", "KAFKA", "DATABASE"))


@dataclass(frozen=True, slots=True)
class Reach:
    """`database`: its URL with the driver's name; None: no plane is up and none is named.
    `reason`, `revision`: why a change is made, and from which revision of a source."""

    data_dir: Path
    database: str | None
    timeouts: Deadlines = field(default_factory=Deadlines)
    reason: str = ""
    revision: str = ""

    def deadlines(self) -> Deadlines:
        """How long the database may take."""
        return self.timeouts


def reach_of(data_dir: Path | None = None, environment: Mapping[str, str] = os.environ) -> Reach:
    """`data_dir`: as a flag names it. SettingsError: as `load_settings` raises it."""
    found = plain_reach(data_dir, environment)
    if found is not None:
        return found
    from wharfinger.runtime.settings import load_settings

    settings = load_settings({"data_dir": data_dir})
    return Reach(settings.data_dir, settings.database, settings.deadlines())


def plain_reach(data_dir: Path | None, environment: Mapping[str, str]) -> Reach | None:
    """None: only all settings together can say."""
    ours = {
        name: value
        for name, value in environment.items()
        if value and name.upper().startswith(ENV_PREFIX)
    }
    if not ours.keys() <= {DATA_DIR, KAFKA, DATABASE}:
        return None
    where = data_dir or Path(ours.get(DATA_DIR, DEFAULT_DATA_DIR))
    try:
        plane = read_plane(where)
        if KAFKA in ours:
            checked_bootstrap(ours[KAFKA])
        elif plane is not None:
            _check_broker(plane)
        database = ours.get(DATABASE) or (plane.database_url if plane is not None else None)
        return Reach(where, None if database is None else async_database_url(database))
    except (PlaneError, ValueError, TypeError, AttributeError):
        # TypeError, AttributeError: no text where text must be
        return None


def _check_broker(plane: Plane) -> None:
    checked_bootstrap(plane.bootstrap)
    if plane.broker not in CAPABILITIES or not isinstance(plane.boot_id, str):
        raise ValueError("no broker of a plane")
