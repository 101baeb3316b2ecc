"""The programs of a Kubernetes control plane, built from Go modules once and kept in the user's
cache.

`go.mod` names etcd, the API server, the controller manager, the scheduler and kubectl of one
release; `kwok/go.mod` names KWOK, which needs other versions of the same libraries. A build is kept
under a hash of both files, their sums and Go's version, so another version never overwrites it. The
first build takes about ten minutes of processor time. Helm is built apart, where charts are tested.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent

PROGRAMS = {
    "etcd": (HERE, "go.etcd.io/etcd/server/v3"),
    "kube-apiserver": (HERE, "k8s.io/kubernetes/cmd/kube-apiserver"),
    "kube-controller-manager": (HERE, "k8s.io/kubernetes/cmd/kube-controller-manager"),
    "kube-scheduler": (HERE, "k8s.io/kubernetes/cmd/kube-scheduler"),
    "kubectl": (HERE, "k8s.io/kubernetes/cmd/kubectl"),
    "kwok": (HERE / "kwok", "sigs.k8s.io/kwok/cmd/kwok"),
}
"""Name -> the module that it is built in and its package."""

STAGES = ("node/fast", "node/heartbeat-with-lease", "pod/fast")
"""What KWOK does with nodes and pods, as its own module describes it: nodes become ready, renew
their leases, pods run at once."""


class KubeError(Exception):
    """One line for a person."""


def without_go() -> str:
    """Why nothing can be built here; "" where it can."""
    return "" if shutil.which("go") else "go is not on PATH"


def programs() -> Path:
    """The directory with all programs, and KWOK's stages in `stages.yaml`. Built where they are not
    there yet."""
    directory = _cache() / _version(HERE, HERE / "kwok")
    if (directory / "complete").exists():
        return directory
    with _alone(directory):
        if not (directory / "complete").exists():
            for name, (module, package) in PROGRAMS.items():
                if not (directory / name).exists():
                    _build(directory / name, module, package)
            (directory / "stages.yaml").write_text(_stages())
            (directory / "complete").touch()
    return directory


def helm() -> Path:
    """Helm's command, built where it is not there yet: some two minutes of processor time."""
    module = HERE.parent / "helm"
    directory = _cache() / f"helm-{_version(module)}"
    with _alone(directory):
        if not (directory / "helm").exists():
            _build(directory / "helm", module, "helm.sh/helm/v3/cmd/helm")
    return directory / "helm"


def _build(target: Path, module: Path, package: str) -> None:
    print(f"kube: building {target.name}", file=sys.stderr, flush=True)
    partial = target.with_suffix(".partial")
    command = [
        "go",
        "build",
        "-mod=readonly",
        "-trimpath",
        "-ldflags",
        "-s -w",
        "-o",
        str(partial),
        package,
    ]
    built = subprocess.run(
        command, cwd=module, capture_output=True, text=True, check=False, env=_environment()
    )
    if built.returncode != 0:
        raise KubeError(f"{target.name} could not be built: {built.stderr.strip()[-2000:]}")
    partial.rename(target)


def _stages() -> str:
    found = subprocess.run(
        ["go", "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok"],
        cwd=HERE / "kwok",
        capture_output=True,
        text=True,
        check=True,
        env=_environment(),
    )
    root = Path(found.stdout.strip()) / "kustomize" / "stage"
    files = [
        file
        for stage in STAGES
        for file in sorted((root / stage).glob("*.yaml"))
        if file.name != "kustomization.yaml"
    ]
    return "\n---\n".join(file.read_text() for file in files)


def _version(*folders: Path) -> str:
    """Of what is built there: modules, their sums, Go."""
    go = subprocess.run(["go", "version"], capture_output=True, check=True).stdout
    files = sorted(file for folder in folders for file in folder.glob("go.*"))
    digest = hashlib.sha256(go)
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _environment() -> dict[str, str]:
    return {**os.environ, "GOTOOLCHAIN": "local", "GOWORK": "off"}


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "wharfinger" / "kube"


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Two runs at once do not build the same."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
