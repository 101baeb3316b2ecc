"""How the services of a plane are divided into processes."""

from pathlib import Path

import pytest

import wharfinger_cli.controllers
import wharfinger_cli.one
import wharfinger_scheduler.app
from wharfinger.runtime.children import (
    EACH,
    MODULES,
    Layout,
    layout_for,
    process_names,
    usable_cores,
)
from wharfinger.runtime.database_logins import LOGINS, login_of
from wharfinger.runtime.supervisor import FIRST


@pytest.mark.parametrize(
    ("cores", "layout"), [(0.5, "one"), (1, "one"), (1.9, "one"), (2, "two"), (64, "two")]
)
def test_where_there_are_two_cores_the_scheduler_has_one_for_itself(
    cores: float, layout: Layout
) -> None:
    assert layout_for("auto", cores) == layout


def test_a_layout_that_was_asked_for_is_taken() -> None:
    layouts: tuple[Layout, ...] = ("one", "two", "each")
    assert [layout_for(layout, 1) for layout in layouts] == list(layouts)


def test_every_layout_runs_every_service_once() -> None:
    controllers, scheduler = (
        set(wharfinger_cli.controllers.BUILDERS),
        set(wharfinger_scheduler.app.BUILDERS),
    )
    assert not controllers & scheduler
    assert set(wharfinger_cli.one.BUILDERS) == controllers | scheduler
    assert set(process_names("two")) == {"controllers", "scheduler", "api"}
    assert set(process_names("one")) == {"one", "api"}
    assert set(EACH) == MODULES.keys() - {"one", "controllers"}


def test_the_process_that_publishes_may_write_positions() -> None:
    for name in ("one", "controllers", "publisher"):
        assert "publisher" in LOGINS[login_of(name)]
    assert LOGINS[login_of("scheduler")] == ("stage",)


def test_after_the_loss_of_a_broker_publisher_and_scheduler_start_first() -> None:
    """In every layout; the stages are ready only when the publisher has filled the topics again."""
    assert set(process_names("two")) - {"api"} <= set(FIRST)
    assert {"publisher", "scheduler"} <= set(FIRST)


def test_a_quota_of_the_control_group_counts_as_so_many_cores(tmp_path: Path) -> None:
    file = tmp_path / "cpu.max"
    free = usable_cores(file)
    assert free >= 1
    for text, cores in (
        ("50000 100000\n", 0.5),
        ("max 100000\n", free),
        ("9900000000 100000\n", free),
        ("no numbers\n", free),
    ):
        file.write_text(text)
        assert usable_cores(file) == cores
