"""`python -m tests.conformance SYSTEM [--vectors DIR] [--suite NAME] [--case NAME] [--json]`"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tests.conformance import runner


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance")
    parser.add_argument("system")
    parser.add_argument("--vectors", type=Path)
    parser.add_argument("--suite", default="")
    parser.add_argument("--case", default="")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    try:
        results = runner.run(options.system, options.vectors, options.suite)
        if options.case:
            suites = runner.read_suites(options.system, options.vectors)
            for result in results:
                for case in suites[result.suite]:
                    if case["name"] == options.case:
                        runner.show(result.suite, case)
    except (ValueError, FileNotFoundError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    whole = runner.SuiteResult(options.system)
    for result in results:
        whole.total += result.total
        whole.passed += result.passed
        whole.deviating += result.deviating
        whole.failed += [f"{result.suite}/{name}" for name in result.failed]
    if options.json:
        report = {r.suite: {"passed": r.passed, "deviating": r.deviating, "total": r.total, "failed": r.failed}
                  for r in [*results, whole]}  # fmt: skip
        sys.stdout.write(json.dumps(report) + "\n")
    else:
        for result in [*results, whole]:
            sys.stdout.write(result.line() + "\n")
        for name in whole.failed[:20]:
            sys.stdout.write(f"  differs: {name}\n")
    return 1 if whole.failed else 0


if __name__ == "__main__":
    sys.exit(main())
