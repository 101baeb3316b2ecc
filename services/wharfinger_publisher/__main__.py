"""`python -m wharfinger_publisher`: the publisher as a process of its own."""

import sys

from wharfinger.runtime.process import run_process
from wharfinger_publisher.app import BUILDERS, NAME

if __name__ == "__main__":
    sys.exit(run_process(NAME, BUILDERS))
