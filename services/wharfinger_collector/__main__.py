"""`python -m wharfinger_collector`: the collector as a process of its own."""

import sys

from wharfinger.runtime.process import run_process
from wharfinger_collector.app import BUILDERS, NAME

if __name__ == "__main__":
    sys.exit(run_process(NAME, BUILDERS))
