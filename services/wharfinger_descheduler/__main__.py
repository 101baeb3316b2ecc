"""`python -m wharfinger_descheduler`: the descheduler as a process of its own."""

import sys

from wharfinger_descheduler.app import BUILDERS, NAME

from wharfinger.runtime.process import run_process

if __name__ == "__main__":
    sys.exit(run_process(NAME, BUILDERS))
