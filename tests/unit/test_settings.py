"""Settings: which source wins, and what a person reads when a value is wrong."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest

from wharfinger.runtime.backends import (
    DURABLE,
    MEMORY,
    BackendError,
    KafkaSecurity,
    shown_database_url,
)
from wharfinger.runtime.plane import Plane, PlaneError, holding, read_plane, write_plane
from wharfinger.runtime.settings import Settings, SettingsError, load_settings, unknown_environment

A_PLANE = Plane(
    bootstrap="127.0.0.1:9092",
    database_url="postgresql+asyncpg://postgres@/wharfinger?host=/run/pg",
    broker="memory",
    boot_id="b-1",
    supervisor_pid=42,
)


@pytest.fixture(autouse=True)
def _clean_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No setting of the machine that runs the tests reaches them."""
    for name in Settings.model_fields:
        monkeypatch.delenv(f"WHARFINGER_{name.upper()}", raising=False)
    monkeypatch.chdir(tmp_path)


def _write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_defaults_hold_when_nothing_is_said() -> None:
    settings = load_settings()
    assert settings.data_dir == Path(".wharfinger")
    assert (settings.fleet_shards, settings.cluster_partitions, settings.http_host) == (
        None,
        4,
        "127.0.0.1",
    )
    assert settings.kafka is None


def test_a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = _write(
        tmp_path / "w.toml", "fleet_shards = 2\ncluster_partitions = 8\nhttp_port = 1000\n"
    )
    monkeypatch.setenv("WHARFINGER_CONFIG", str(config))
    monkeypatch.setenv("WHARFINGER_CLUSTER_PARTITIONS", "9")
    monkeypatch.setenv("WHARFINGER_HTTP_PORT", "2000")
    settings = load_settings({"http_port": 3000, "log_level": None})
    assert (settings.http_port, settings.cluster_partitions, settings.fleet_shards) == (3000, 9, 2)
    assert settings.log_level == "info"


def test_a_yaml_file_is_read_as_a_toml_file_is(tmp_path: Path) -> None:
    config = _write(tmp_path / "w.yaml", "fleet_shards: 3\nkafka: a:1, b:2\n")
    settings = load_settings({"config": config})
    assert (settings.fleet_shards, settings.kafka) == (3, "a:1,b:2")


@pytest.mark.parametrize(
    ("url", "driver_url"),
    [
        ("postgres://u:p@h/d", "postgresql+asyncpg://u:p@h/d"),
        ("postgresql://u@h:1/d", "postgresql+asyncpg://u@h:1/d"),
        ("postgresql+asyncpg:///d?host=/run", "postgresql+asyncpg:///d?host=/run"),
    ],
)
def test_any_spelling_of_a_postgres_url_names_our_driver(url: str, driver_url: str) -> None:
    assert load_settings({"database": url}).database == driver_url


def test_every_bad_field_gets_one_line_with_its_name_and_origin(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = _write(tmp_path / "w.yaml", "fleet_shards: 0\nlog_colour: red\n")
    monkeypatch.setenv("WHARFINGER_KAFKA", "nowhere")
    monkeypatch.setenv("WHARFINGER_PROCESSES", "many")
    with pytest.raises(SettingsError) as raised:
        load_settings({"config": config, "database": "mysql://x/y", "http_port": "high"})
    lines = {line.split(": expected")[0]: line for line in raised.value.lines}
    assert all("\n" not in line for line in raised.value.lines)
    assert len(raised.value.lines) == 6
    assert "host:port" in lines["WHARFINGER_KAFKA"]
    assert "'auto', 'one', 'two' or 'each'" in lines["WHARFINGER_PROCESSES"]
    assert "postgresql://" in lines["--database"]
    assert "integer" in lines["--http-port"]
    assert "greater than 0" in lines[f"{config}: fleet_shards"]
    assert any(line.startswith(f"{config}: log_colour: ") for line in raised.value.lines)


def test_an_error_never_repeats_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHARFINGER_DATABASE", "mysql://me:hunter2@h/d")
    with pytest.raises(SettingsError) as raised:
        load_settings()
    assert "hunter2" not in str(raised.value)
    settings = load_settings(
        {"database": "postgres://me:hunter2@h/d", "kafka": "h:1", "prometheus_bearer": "t0ken"}
    )
    assert "t0ken" not in repr(settings)
    assert "hunter2" not in repr(settings.backend())
    assert shown_database_url("postgresql+asyncpg://me:hunter2@h:5/d") == "h:5/d"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("w.toml", "fleet_shards = ", "w.toml"),
        ("w.yaml", "a: [1", "w.yaml"),
        ("w.yaml", "- 1\n", "expected a mapping"),
        ("w.ini", "", "expected a name that ends in"),
    ],
)
def test_a_file_that_is_no_settings_file_is_one_line(
    tmp_path: Path, name: str, text: str, expected: str
) -> None:
    with pytest.raises(SettingsError) as raised:
        load_settings({"config": _write(tmp_path / name, text)})
    assert len(raised.value.lines) == 1
    assert "\n" not in raised.value.lines[0]
    assert expected in raised.value.lines[0]


def test_a_missing_file_is_named() -> None:
    with pytest.raises(SettingsError, match=r"absent\.yaml: No such file"):
        load_settings({"config": "absent.yaml"})


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"kafka_security": "SASL_SSL", "kafka_username": "u"}, "kafka_password"),
        ({"kafka_cert_file": "c.pem"}, "both or neither"),
        ({"prometheus_username": "u"}, "both or neither"),
        ({"prometheus_bearer": "a", "prometheus_bearer_file": "b"}, "one of"),
    ],
)
def test_credentials_that_do_not_fit_together_are_refused(
    flags: dict[str, str], expected: str
) -> None:
    with pytest.raises(SettingsError, match=expected):
        load_settings(flags)


def test_a_running_plane_is_found_by_its_data_directory(tmp_path: Path) -> None:
    write_plane(tmp_path / "d", A_PLANE)
    backend = load_settings({"data_dir": tmp_path / "d"}).backend()
    assert (backend.bootstrap, backend.database_url, backend.boot_id) == (
        "127.0.0.1:9092",
        A_PLANE.database_url,
        "b-1",
    )
    assert backend.capabilities == MEMORY


def test_the_environment_says_otherwise_than_the_plane(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_plane(tmp_path / "d", A_PLANE)
    monkeypatch.setenv("WHARFINGER_DATA_DIR", str(tmp_path / "d"))
    monkeypatch.setenv("WHARFINGER_KAFKA", "kafka:9092")
    backend = load_settings().backend()
    assert (backend.bootstrap, backend.boot_id, backend.capabilities) == ("kafka:9092", "", DURABLE)
    assert backend.database_url == A_PLANE.database_url


def test_without_a_plane_the_missing_addresses_are_named() -> None:
    with pytest.raises(SettingsError) as raised:
        load_settings({"kafka": "h:1"}).backend()
    assert raised.value.lines == (
        (
            "database: not set, and no plane is up in .wharfinger: "
            "start one with `wharfinger up` or "
            "set WHARFINGER_DATABASE"
        ),
    )


def test_a_broken_plane_file_is_one_line(tmp_path: Path) -> None:
    _write(tmp_path / "plane.json", '{"half": ')
    with pytest.raises(SettingsError, match=r"plane\.json: not a plane file"):
        load_settings({"data_dir": tmp_path})


def test_a_plane_file_holds_what_was_written(tmp_path: Path) -> None:
    write_plane(tmp_path, A_PLANE)
    assert read_plane(tmp_path) == A_PLANE
    assert read_plane(tmp_path / "elsewhere") is None


def test_a_data_directory_has_one_holder(tmp_path: Path) -> None:
    with (
        holding(tmp_path),
        pytest.raises(PlaneError, match="another plane holds this directory"),
        holding(tmp_path),
    ):
        pass
    with holding(tmp_path):
        assert stat.S_IMODE((tmp_path / "lock").stat().st_mode) == 0o600


def test_a_misspelt_variable_is_found() -> None:
    assert unknown_environment(
        {"WHARFINGER_DATABSE": "x", "WHARFINGER_KAFKA": "h:1", "HOME": "/"}
    ) == ["WHARFINGER_DATABSE"]


def test_broker_security_becomes_client_options() -> None:
    settings = load_settings(
        {
            "kafka": "h:1,i:2",
            "database": "postgres:///d",
            "kafka_security": "SASL_SSL",
            "kafka_sasl_mechanism": "SCRAM-SHA-512",
            "kafka_username": "u",
            "kafka_password": "p",
        }
    )
    options = settings.backend().client_options()
    assert options["bootstrap_servers"] == ["h:1", "i:2"]
    assert (options["security_protocol"], options["sasl_mechanism"]) == (
        "SASL_SSL",
        "SCRAM-SHA-512",
    )
    assert (options["sasl_plain_username"], options["sasl_plain_password"]) == ("u", "p")
    assert options["ssl_context"] is not None
    assert options["ssl_context"].check_hostname


def test_a_missing_certificate_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match=r"ca\.pem"):
        KafkaSecurity(protocol="SSL", ca_file=tmp_path / "ca.pem").ssl_context()


@pytest.mark.parametrize(
    ("text", "matchers"),
    [
        ("", ()),
        ('job="node-exporter"', (("job", "=", "node-exporter"),)),
        (' job = "a,b" , env=~"prod.*",', (("job", "=", "a,b"), ("env", "=~", "prod.*"))),
        (r'a!="say \"n\"",b!~"c:\\x\n"', (("a", "!=", 'say "n"'), ("b", "!~", "c:\\x\n"))),
    ],
)
def test_matchers_are_written_as_in_promql(
    monkeypatch: pytest.MonkeyPatch, text: str, matchers: tuple[tuple[str, str, str], ...]
) -> None:
    monkeypatch.setenv("WHARFINGER_PROMETHEUS_MATCHERS", text)
    assert load_settings().prometheus_matchers == matchers


@pytest.mark.parametrize(
    "text", ["job", "job=x", 'job="a" env="b"', 'job="a', r'job="\q"', '{job="a"}', ',job="a"']
)
def test_what_is_no_matcher_is_one_line(text: str) -> None:
    with pytest.raises(SettingsError) as raised:
        load_settings({"prometheus_matchers": text})
    (line,) = raised.value.lines
    assert line.startswith("--prometheus-matchers: expected PromQL label matchers")


@pytest.mark.parametrize(
    "flags",
    [
        {"prometheus_cluster_label": "not a label"},
        {"prometheus_key_file": "k.pem"},
        {"node_strategy": "balanced"},
        {"snapshot_rows": 0},
        {"proposal_repeat_after_s": 0},
        {"stale_after_s": 0},
        {"disruption_poll_s": 0},
        {"disruption_validation_s": -1},
        {"move_cool_down_s": -1},
    ],
)
def test_a_setting_that_cannot_work_is_refused_at_the_start(flags: dict[str, object]) -> None:
    (name,) = flags
    with pytest.raises(SettingsError, match=f"(--)?{name.replace('_', '[_-]')}"):
        load_settings(flags)


def test_no_setting_is_without_a_reader() -> None:
    """A knob that turns nothing is worse than none."""
    root = Path(__file__).parents[2]
    sources = [
        path for part in ("shared", "services") for path in sorted((root / part).rglob("*.py"))
    ]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    idle = {
        name for name in Settings.model_fields if not re.search(rf"(settings|self)\.{name}\b", text)
    }
    # The first names the file itself, and is read before there are settings. The other is read from
    # the environment with the options of a command, which needs no settings.
    assert idle == {"config", "token_file"}
