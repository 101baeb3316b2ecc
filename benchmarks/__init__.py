"""What the plane does on this machine, measured from outside: the commands a user has, and a
subscriber to `decisions`.

`python -m benchmarks` prints the table of docs/performance.md. Raw limits of broker and disk are
measured in the same run, because the machine under it decides more than the code does: compare
ratios, not figures of two runs.
"""
