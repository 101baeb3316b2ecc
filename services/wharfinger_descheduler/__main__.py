"""`python -m wharfinger_descheduler`: the descheduler as a process of its own."""

import sys

from wharfinger.runtime.process import run_process
from wharfinger_descheduler.app import BUILDERS, NAME

if __name__ == "__main__":
    sys.exit(run_process(NAME, BUILDERS))
