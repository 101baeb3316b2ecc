"""Real Kubernetes control planes on this machine, without Docker and without root.

    # build the programs, Helm, Karmada and Karpenter, print the programs' directory
    python -m infra.kube.local build
    # start one, and use it: `start` prints the lines for a shell that set KUBECONFIG and PATH
    eval "$(python -m infra.kube.local start build/kube/oslo --with controllers)"
    python -m infra.kube.local stop build/kube/oslo
    python -m infra.kube.local run build/kube --clusters oslo,bergen -- pytest tests/kube

`run` starts one control plane a name, sets WHARFINGER_TEST_KUBE to the directory that has one
directory for each, and hands the exit code of the command on. With `--sets N` it starts so many of
each, in directories `set-0`, `set-1`, ... of it, so that N jobs share none. The other halves:
`programs.py` builds, `cluster.py` starts one, `certificates.py` signs. Needs Go; `run` says so and
succeeds where it is missing, so that a machine without Go can still run all other tests.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from infra.kube import cluster
from infra.kube.programs import KubeError, helm, karmada, karpenter, programs, without_go

VARIABLE = "WHARFINGER_TEST_KUBE"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description="Real Kubernetes control planes on this machine, built from Go modules."
    )
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("build")
    for name in ("start", "stop"):
        action = actions.add_parser(name)
        action.add_argument("directory", type=Path)
        if name == "start":
            action.add_argument(
                "--with", dest="wanted", default="", help=f"of {','.join(cluster.OPTIONAL)}"
            )
    run_action = actions.add_parser("run")
    run_action.add_argument("directory", type=Path)
    run_action.add_argument(
        "--clusters", default="oslo", help="a name for each, with commas between"
    )
    run_action.add_argument(
        "--with", dest="wanted", default="", help=f"of {','.join(cluster.OPTIONAL)}"
    )
    run_action.add_argument("--sets", type=int, default=1, help="how many clusters of each name")
    # All behind the first -- is the command of run.
    own = arguments.index("--") if "--" in arguments else len(arguments)
    options, command = parser.parse_args(arguments[:own]), arguments[own + 1 :]
    wanted = [name for name in getattr(options, "wanted", "").split(",") if name]
    try:
        match options.action:
            case "build":
                print(programs())
                helm()
                karmada()
                karpenter()
            case "start":
                started = cluster.start(options.directory.resolve(), wanted)
                print(f"export KUBECONFIG={shlex.quote(str(started.kubeconfig()))}")
                print(f'export PATH={shlex.quote(str(programs()))}:"$PATH"')
            case "stop":
                cluster.stop(options.directory.resolve())
            case "run":
                if not command:
                    parser.error("run needs a command after --")
                names = options.clusters.split(",")
                if options.sets > 1:
                    names = [f"set-{i}/{name}" for i in range(options.sets) for name in names]
                return run(options.directory.resolve(), names, wanted, command)
    except KubeError as error:
        print(f"kube: {error}", file=sys.stderr)
        return 2
    return 0


def run(directory: Path, names: list[str], wanted: list[str], command: list[str]) -> int:
    """The command's exit code. The clusters are new, and gone when the command ends, however it
    ends."""
    if reason := without_go():
        print(f"skipped: the tests on real API servers need Go, and {reason}")
        return 0
    programs()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        for name in names:
            cluster.stop(directory / name)
            shutil.rmtree(directory / name, ignore_errors=True)
            cluster.start(directory / name, wanted, with_parent=True)
        environment = {**os.environ, VARIABLE: str(directory)}
        return subprocess.run(command, env=environment, check=False).returncode
    finally:
        for name in names:
            cluster.stop(directory / name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
