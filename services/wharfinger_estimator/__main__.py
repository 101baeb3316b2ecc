"""`python -m wharfinger_estimator`: the estimator as a process of its own."""

import sys

from wharfinger.runtime.process import run_process
from wharfinger_estimator.app import BUILDERS, NAME

if __name__ == "__main__":
    sys.exit(run_process(NAME, BUILDERS))
