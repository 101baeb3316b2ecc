"""Names, labels and messages that try to steer what shows them: a terminal, a pipe, a page, a
log."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
import unicodedata
from random import Random

import pytest
import structlog
from jinja2 import DictLoader
from rich.text import Text
from ruamel.yaml import YAML

from wharfinger.domain.text import escaped
from wharfinger.history import html_pages
from wharfinger.runtime.log_setup import LogFormat, configure_logging
from wharfinger_cli.output import (
    Format,
    complain,
    console,
    messages,
    new_table,
    print_parts,
    show,
    show_list,
)

PIECES = (
    *("web", "é", "漢", "\U0001f469\u200d\U0001f680", "\\", "'", '"', "%s", "{}"),
    *("\x1b[2J", "\x1b]0;title\x07", "\x9b31m", "\r", "\n", "\t", "\x08", "\x00", "\x7f", "\u0085"),
    *("\u202e", "\u2066", "\u200b", "\u2028", "\ud800", "\U000e0001"),
    *("[red]", "[/]", "[/red]", "[[", ":boom:", "<script>", "&amp;", "{{ 7 * 7 }}"),
)
"""Letters, codes of terminals, invisible characters, and what rich, HTML and templates take for
markup."""


def hostile(number: int = 300) -> list[str]:
    random = Random(7)
    made = ["".join(random.choices(PIECES, k=random.randint(1, 6))) for _ in range(number)]
    return [*PIECES, *made]


NAMES = hostile()


def steers(text: str) -> list[str]:
    """Characters that do something instead of being seen. Line breaks are for the caller to
    count."""
    return [
        c for c in text if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    ]


def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """With colours, so that rich writes codes of its own."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "4000")


def without_styles(text: str) -> str:
    """What rich itself writes to colour its own cells is taken away; nothing else is."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_text_that_is_escaped_steers_nothing_and_json_still_says_it() -> None:
    for name in NAMES:
        assert not steers(escaped(name))
        assert "\n" not in escaped(name)
        written = escaped(json.dumps([name], ensure_ascii=False))
        assert not steers(written)
        assert json.loads(written) == [name]


def test_what_is_under_way_is_said_without_markup(capsys: pytest.CaptureFixture[str]) -> None:
    for name in NAMES:
        with messages().status(f"exporting to {name}") as status:
            assert isinstance(status.status, Text)
            assert status.status == Text(f"exporting to {name}")
    assert not steers(capsys.readouterr().err)


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("cell", [str, Text])
def test_a_row_of_a_table_is_one_line_that_steers_nothing(
    terminal: bool, cell: type, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if terminal:
        on_a_terminal(monkeypatch)
    table = new_table("name", "message")
    for name in NAMES:
        table.add_row(cell(name), cell(name))
    print_parts([table])
    shown = without_styles(capsys.readouterr().out)
    assert not steers(shown)
    assert len(shown.splitlines()) == len(NAMES) + 1
    assert {"[red]", ":boom:"} <= set(shown.split()), "nothing is taken for markup"


@pytest.mark.parametrize("format_", list(Format))
def test_every_look_of_an_answer_says_it_and_steers_nothing(
    format_: Format, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in NAMES:
        show(format_, {"name": name}, [name], lambda name=name: [name, Text(name)])  # type: ignore[misc]
        out = capsys.readouterr().out
        assert not steers(out)
        if format_ is Format.JSON:
            assert json.loads(out) == {"name": name}
        elif format_ is Format.YAML:
            assert YAML(typ="safe", pure=True).load(out) == {"name": name}
    show_list(format_, [{"name": n} for n in NAMES], NAMES, lambda: new_table("name"), "nothing")
    assert not steers(capsys.readouterr().out)


def test_messages_and_errors_steer_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    on_a_terminal(monkeypatch)
    for name in NAMES:
        complain(f"no binding is named {name}")
        messages().print(f"skipped {name}", soft_wrap=True)
        console().print(Text(name, "red"))
    seen = capsys.readouterr()
    assert not steers(without_styles(seen.out + seen.err))
    assert len([line for line in seen.err.splitlines() if line.startswith("wharfinger: ")]) == len(
        NAMES
    )


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_line_of_the_log_is_one_line_that_steers_nothing(log_format: LogFormat) -> None:
    stream = io.StringIO()
    try:
        for name in NAMES:
            configure_logging("info", log_format, stream)  # lines that repeat are limited
            structlog.get_logger().info("record.refused", name=name, why=f"expected {name}")
            logging.getLogger("aiokafka").warning("no such topic: %s", name)
    finally:
        configure_logging("info", "json", sys.stderr)
    assert not steers(stream.getvalue().replace("\x7f", ""))
    assert len(stream.getvalue().splitlines()) == 2 * len(NAMES)


def test_a_page_shows_text_and_takes_no_markup_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    template = '<td title="{{ name }}">{{ name }}</td>'
    monkeypatch.setattr("jinja2.PackageLoader", lambda _: DictLoader({"page": template}))
    for name in NAMES:
        page = html_pages.rendered("page", name=name)
        assert not steers(page)
        assert page.count("<") == 2
