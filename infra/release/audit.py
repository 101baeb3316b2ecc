"""Known vulnerabilities of the pinned packages, by pip-audit.

    python -m infra.release.audit

It needs the network. Where the vulnerability service cannot be reached, one line says that the
audit was skipped, and the exit code is 0; a found vulnerability is 1.
"""

from __future__ import annotations

import subprocess
import sys

from infra.release.installed import ROOT

LOCK = "requirements-runtime.lock"
UNREACHABLE = (
    "ServiceError",
    "ConnectionError",
    "ConnectTimeout",
    "Could not connect",
    "ProxyError",
)


def main() -> int:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip_audit", "--disable-pip", "--require-hashes"),
            *("--progress-spinner", "off", "--vulnerability-service", "osv", "-r", LOCK),
        ],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode and any(word in done.stderr for word in UNREACHABLE):
        print("skipped: dependency audit: the vulnerability service cannot be reached")
        return 0
    print(done.stdout + done.stderr, end="")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
