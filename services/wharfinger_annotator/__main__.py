"""`python -m wharfinger_annotator`: the annotator as a process of its own."""

import sys

from wharfinger_annotator.app import BUILDERS, NAME

from wharfinger.runtime.process import run_process

if __name__ == "__main__":
    sys.exit(run_process(NAME, BUILDERS))
