"""`wharfinger`, and `python -m wharfinger_cli`: run one command, end with its exit code.

This is the one place where failures become lines and codes. What is expected to go wrong is a line; what is not keeps its
traceback, because then the fault is ours.
"""

from __future__ import annotations

import logging
import os
import sys

from wharfinger_cli.failures import FAILURE, CommandError, expected_failure

INTERRUPTED = 130  # 128 + SIGINT, as shells count


def main() -> int:
    from wharfinger_cli.app import app

    # What libraries log on their way to an error is no answer; the error itself becomes a line. `up` logs to its file.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        app(prog_name="wharfinger")
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


def _heard_enough() -> int:
    """Whoever read us closed the pipe, which is no failure. Python would complain once more at exit, when it flushes."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _complain(error: CommandError) -> int:
    for line in error.lines:
        print(f"wharfinger: {line}", file=sys.stderr)
    return error.code


if __name__ == "__main__":
    sys.exit(main())
