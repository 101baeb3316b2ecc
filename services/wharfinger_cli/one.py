"""`python -m wharfinger_cli.one`: all services in one process, as `wharfinger up` runs them where
there is one core."""

from __future__ import annotations

import sys

from wharfinger.runtime.process import run_process
from wharfinger_cli.controllers import BUILDERS as CONTROLLERS
from wharfinger_scheduler.app import BUILDERS as SCHEDULER

NAME = "one"

BUILDERS = {**CONTROLLERS, **SCHEDULER}

if __name__ == "__main__":
    sys.exit(run_process(NAME, BUILDERS))
