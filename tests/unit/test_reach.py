"""Where the database is, found without all settings: never otherwise than all settings say it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.runtime.database_location import Reach, plain_reach, reach_of
from wharfinger.runtime.plane import ENV_PREFIX, PLANE_FILE, Plane, write_plane
from wharfinger.runtime.settings import Settings, SettingsError, load_settings

URLS = st.sampled_from(
    [
        "postgresql://me:secret@h:1/d",
        "postgres://h/d",
        "postgresql+asyncpg:///d?host=/run",
        "mysql://h/d",
        "",
        "nowhere",
    ]
)
SERVERS = st.sampled_from(["h:1", "a:1, b:2", "nowhere", "h:0", "h:x", ""])
VARIABLES = {
    "DATABASE": URLS,
    "KAFKA": SERVERS,
    "DATA_DIR": st.sampled_from(["elsewhere", "here", ""]),
    "DATABASE_TIMEOUT_S": st.sampled_from(["5", "0", "", "x"]),
    "database": URLS,
    "FLEET_SHARDS": st.sampled_from(["2", "0", ""]),
    "CONFIG": st.sampled_from(["w.yaml", "absent.yaml", ""]),
    "NO_SETTING": st.just("1"),
}
PLANES = st.one_of(
    st.none(),
    st.builds(
        Plane,
        SERVERS,
        URLS,
        st.sampled_from(["memory", "durable", "mighty"]),
        st.sampled_from(["b-1", ""]),
        st.just(1),
    ),
    st.sampled_from(
        [
            "{",
            "[]",
            '{"bootstrap": 1, "database_url": 2, "broker": 3, "boot_id": 4, "supervisor_pid": 5}',
        ]
    ),
)


@given(
    st.fixed_dictionaries(
        {}, optional={ENV_PREFIX + name: values for name, values in VARIABLES.items()}
    ),
    st.sampled_from([None, "here", "elsewhere"]),
    PLANES,
)
def test_what_is_found_is_what_all_settings_say(
    variables: dict[str, str], flag: str | None, plane: Plane | str | None
) -> None:
    outside = {
        name: value for name, value in os.environ.items() if not name.upper().startswith(ENV_PREFIX)
    }
    before = Path.cwd()
    with (
        tempfile.TemporaryDirectory() as here,
        patch.dict(os.environ, {**outside, **variables}, clear=True),
    ):
        os.chdir(here)
        try:
            Path("w.yaml").write_text("database_timeout_s: 7\ndatabase: postgresql://file/d\n")
            if isinstance(plane, Plane):
                write_plane(Path("here"), plane)
            elif plane is not None:
                Path("here").mkdir()
                Path("here", PLANE_FILE).write_text(plane)
            data_dir = None if flag is None else Path(flag)
            found = plain_reach(data_dir, os.environ)
            expected = by_all_settings(data_dir)
            assert found in (None, expected)
            if isinstance(expected, Reach):
                assert reach_of(data_dir) == expected
            else:
                with pytest.raises(SettingsError) as raised:
                    reach_of(data_dir)
                assert raised.value.lines == expected
        finally:
            os.chdir(before)


def by_all_settings(data_dir: Path | None) -> Reach | tuple[str, ...]:
    try:
        settings = load_settings({"data_dir": data_dir})
    except SettingsError as error:
        return error.lines
    return Reach(settings.data_dir, settings.database, settings.deadlines())


def test_a_plane_that_is_up_needs_no_other_settings(tmp_path: Path) -> None:
    write_plane(tmp_path, Plane("h:1", "postgresql://h/d", "memory", "b-1", 1))
    found = plain_reach(tmp_path, {"HOME": "/", f"{ENV_PREFIX}KAFKA": ""})
    assert found == Reach(tmp_path, "postgresql+asyncpg://h/d")
    assert found.deadlines() == Settings().deadlines()
