"""`python -m tests.conformance SYSTEM [--vectors DIR] [--suite NAME] [--case NAME] [--json]`

Exit 0: every case is answered as recorded or falls under a listed deviation; 1: some are not; 2:
there is nothing to ask.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tests.conformance import runner


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance")
    parser.add_argument("system", help=", ".join(runner.SYSTEMS))
    parser.add_argument(
        "--vectors", type=Path, help="a folder with files of that system; else the project's own"
    )
    parser.add_argument("--suite", default="", help="this suite alone")
    parser.add_argument(
        "--case", default="", help="this case alone, with input, expected and actual answer"
    )
    parser.add_argument("--json", action="store_true", help="the numbers as JSON")
    options = parser.parse_args(arguments)
    try:
        results = runner.run(options.system, options.vectors, options.suite, options.case)
        if options.case and not options.json:
            runner.show(options.system, options.vectors, options.suite, options.case)
    except runner.UnreadableError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    whole = runner.SuiteResult(options.system)
    for result in results:
        whole.total += result.total
        whole.passed += result.passed
        whole.deviating += result.deviating
        whole.failed += [f"{result.suite}/{name}" for name in result.failed]
        whole.aside += result.aside
    if options.json:
        report = {
            r.suite: {
                "passed": r.passed,
                "deviating": r.deviating,
                "total": r.total,
                **({"reference": dict(sorted(r.aside.items()))} if r.aside else {}),
                "failed": r.failed,
            }
            for r in [*results, whole]
        }
        sys.stdout.write(json.dumps(report) + "\n")
    else:
        for name in whole.failed[:SHOWN]:
            sys.stdout.write(f"  differs: {name}\n")
        if len(whole.failed) > SHOWN:
            sys.stdout.write(f"  and {len(whole.failed) - SHOWN} more\n")
        for why, count in sorted(whole.aside.items()):
            sys.stdout.write(f"  {count} by the reference: {why}\n")
        for result in [*results, whole]:
            sys.stdout.write(result.line() + "\n")
    return 1 if whole.failed else 0


SHOWN = 20
"""How many cases that differ are named."""

if __name__ == "__main__":
    sys.exit(main())
