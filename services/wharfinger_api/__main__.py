"""`python -m wharfinger_api`: the HTTP API as a process of its own."""

import sys

from wharfinger_api.server import run

if __name__ == "__main__":
    sys.exit(run())
