"""`wharfinger`, and `python -m wharfinger_cli`: run one command, end with its exit code.

This is the one place where failures become lines and codes. What is expected to go wrong is a line;
what is not keeps its traceback, because then the fault is ours.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from contextlib import suppress
from typing import NoReturn

from wharfinger_cli.failures import FAILURE, CommandError, expected_failure
from wharfinger_cli.output import complain

SIGNALLED = 128  # exit codes above it name a signal, as shells count
INTERRUPTED = 130  # SIGINT


def program() -> NoReturn:
    """The command as a process: it ends here, with the exit code."""
    code = main()
    if code > SIGNALLED or _threads_go_on():
        _end_at_once(code)
    sys.exit(code)


def main() -> int:
    """Run the command that `sys.argv` names; the exit code. The process goes on."""
    from wharfinger_cli.app import app
    from wharfinger_cli.command_line import command_line

    # What libraries log on their way to an error is no answer; the error itself becomes a line.
    # `up` logs to its file.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        command_line(app)(prog_name="wharfinger")
    except CommandError as error:
        return _complain(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return _heard_enough()
    except SystemExit as exit_:
        if isinstance(exit_.__context__, BrokenPipeError):  # as the command framework puts it
            return _heard_enough()
        return exit_.code if isinstance(exit_.code, int) else FAILURE
    except Exception as error:
        expected = expected_failure(error)
        if expected is None:
            raise
        return _complain(expected)
    return 0


def _threads_go_on() -> bool:
    """A thread in the background still computes. An orderly exit destroys libraries under it: a
    library that is computing then ends the process with SIGABRT, after all has been done and
    printed."""
    return any(
        thread.daemon and thread is not threading.current_thread()
        for thread in threading.enumerate()
    )


def _end_at_once(code: int) -> NoReturn:
    """Without the interpreter's own end. That one ends `python -m` by SIGINT, with any exit
    code, where the KeyboardInterrupt came while text was executed (which is how `dataclass` and
    `namedtuple` make classes during an import) although it was caught."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(BrokenPipeError, ValueError):
            stream.flush()
    os._exit(code)


def _heard_enough() -> int:
    """The reader of our output closed the pipe, which is no failure. Standard output is replaced,
    because Python flushes it at exit and would report the closed pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _complain(error: CommandError) -> int:
    for line in error.lines:
        complain(line)
    return error.code


if __name__ == "__main__":
    program()
