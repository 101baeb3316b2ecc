"""The form of log lines.

A log line is an event name with keys, never a formatted sentence. Lines that other libraries log
through the standard library take the same form, from WARNING up. Warnings and errors that repeat
are limited (`log_limit`). Logs go to standard error, so that
standard output is the command's alone. No stream is ever redirected.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping, Sequence
from typing import TYPE_CHECKING, Literal, TextIO

from wharfinger.domain.text import escaped
from wharfinger.runtime.log_limit import LEFT_OUT, LogLimit
from wharfinger.runtime.logs import structlog

if TYPE_CHECKING:  # `logs` imports structlog first
    from structlog.typing import ExceptionRenderer, ExcInfo, Processor

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["json", "console"]

# Libraries that put logging handlers or levels of their own in place when they are imported.
FOREIGN_LOGGERS = ("aiohttp", "aiokafka", "alembic", "asyncio", "faust", "mode", "sqlalchemy")


def configure_logging(level: LogLevel, log_format: LogFormat, stream: TextIO | None = None) -> None:
    """Call it once a process, before the first log line; a second call replaces the configuration.
    `stream` is standard error unless given."""
    target = stream if stream is not None else sys.stderr
    threshold = logging.getLevelNamesMapping()[level.upper()]
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    rendering = _rendering(log_format, colors=target.isatty())
    limit = LogLimit()
    structlog.configure(
        processors=[*shared, limit.processor, *rendering],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.WriteLoggerFactory(file=target),
        cache_logger_on_first_use=False,  # module-level loggers follow a later configuration
    )
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, _name_logger],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
        )
    )
    handler.addFilter(limit.filter)
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(max(threshold, logging.WARNING))
    for name in FOREIGN_LOGGERS:
        foreign = logging.getLogger(name)
        foreign.handlers, foreign.propagate = [], True
        foreign.setLevel(logging.NOTSET)


def _rendering(log_format: LogFormat, *, colors: bool) -> Sequence[Processor]:
    match log_format:
        case "json":
            # Without the frames' variables: they may hold secrets, and a state is megabytes.
            tracebacks = structlog.processors.ExceptionRenderer(
                structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
            )
            return (tracebacks, structlog.processors.JSONRenderer(sort_keys=True))
        case "console":
            renderer = structlog.dev.ConsoleRenderer(
                colors=colors, exception_formatter=_console_traceback(colors=colors)
            )
            return (_printable, renderer)


def _console_traceback(*, colors: bool) -> ExceptionRenderer:
    """As structlog's own, which it has only where it finds rich (see `logs`), but without the
    frames' variables, as in JSON."""

    def render(output: TextIO, exc_info: ExcInfo) -> None:
        from rich.console import Console
        from rich.traceback import Traceback

        output.write("\n")
        console = Console(file=output, color_system="truecolor" if colors else None)
        console.print(
            Traceback.from_exception(*exc_info, width=None, show_locals=False, word_wrap=True)
        )

    return render


def _printable(
    _logger: object, _method: str, event: MutableMapping[str, object]
) -> MutableMapping[str, object]:
    """Names and messages from outside do not steer the terminal of who reads the log. Tracebacks
    have lines."""
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = escaped(value, lines=key in ("exception", "stack"))
    return event


def _name_logger(
    _logger: logging.Logger, _method: str, event: MutableMapping[str, object]
) -> MutableMapping[str, object]:
    """Whose line it is: a library's message means little without it. And how many like it were left
    out."""
    record = event.get("_record")
    if isinstance(record, logging.LogRecord):
        event["logger"] = record.name
        if left_out := getattr(record, LEFT_OUT, 0):
            event[LEFT_OUT] = left_out
    return event
