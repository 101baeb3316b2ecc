"""What the reports have in common that are written as one HTML page each: their templates and
their times."""

from __future__ import annotations

from datetime import UTC, datetime

from wharfinger.domain.text import escaped


def rendered(template: str, **values: object) -> str:
    """The page that a template of this package makes of `values`, escaped."""
    # Loading Jinja takes a while, and most commands write no page.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("wharfinger.history"),
        autoescape=True,
        finalize=_visible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**values)


def _visible(value: object) -> object:
    """Markup of ours stays, text gets nothing invisible in it."""
    return escaped(value, lines=True) if type(value) is str else value


def utc(micros: int) -> str:
    """A time in microseconds, to the second."""
    return datetime.fromtimestamp(micros // 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
