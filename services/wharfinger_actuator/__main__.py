"""`python -m wharfinger_actuator`: the actuator as a process of its own."""

import sys

from wharfinger.runtime.process import run_process
from wharfinger_actuator.app import BUILDERS, NAME

if __name__ == "__main__":
    sys.exit(run_process(NAME, BUILDERS))
