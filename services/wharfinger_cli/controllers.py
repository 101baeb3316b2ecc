"""`python -m wharfinger_cli.controllers`: all services but those that decide, in one process. Where
there are two cores, `wharfinger up` runs the scheduler beside it."""

from __future__ import annotations

import sys

from wharfinger.runtime.process import run_process
from wharfinger_actuator.app import BUILDERS as ACTUATOR
from wharfinger_annotator.app import BUILDERS as ANNOTATOR
from wharfinger_collector.app import BUILDERS as COLLECTOR
from wharfinger_descheduler.app import BUILDERS as DESCHEDULER
from wharfinger_estimator.app import BUILDERS as ESTIMATOR
from wharfinger_publisher.app import BUILDERS as PUBLISHER

NAME = "controllers"

BUILDERS = {**PUBLISHER, **ESTIMATOR, **DESCHEDULER, **ANNOTATOR, **COLLECTOR, **ACTUATOR}
"""The publisher first, since everything waits for what it relays."""

if __name__ == "__main__":
    sys.exit(run_process(NAME, BUILDERS))
