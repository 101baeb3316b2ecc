"""The programs of a Kubernetes control plane, built from Go modules once and kept in the user's
cache.

`go.mod` names etcd, the API server, the controller manager, the scheduler and kubectl of one
release; `kwok/go.mod` names KWOK, which needs other versions of the same libraries. A build is kept
under a hash of both files, their sums and Go's version, so another version never overwrites it. The
first build takes about ten minutes of processor time. Helm, Karmada and Karpenter are built apart,
for the tests that use them.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
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

KARMADA = "github.com/karmada-io/karmada"

KARMADA_PROGRAMS = {
    "karmada-controller-manager": f"{KARMADA}/cmd/controller-manager",
    "karmada-webhook": f"{KARMADA}/cmd/webhook",
}

KARPENTER = "sigs.k8s.io/karpenter"

KARPENTER_PROGRAMS = {"karpenter": f"{KARPENTER}/kwok"}
"""All of Karpenter's controllers, with the provider that creates nodes which KWOK keeps ready."""

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
    return _apart("helm", HERE.parent / "helm", {"helm": "helm.sh/helm/v3/cmd/helm"}) / "helm"


def karmada() -> Path:
    """The directory with Karmada's controller manager and its webhooks, built where they are not
    there yet: some five minutes of processor time."""
    return _apart("karmada", HERE / "karmada", KARMADA_PROGRAMS)


def karmada_sources() -> Path:
    """The folder of the module that they are built from: it has the definitions of Karmada's kinds
    and the configuration of its webhooks."""
    return _sources(HERE / "karmada", KARMADA)


def karpenter() -> Path:
    """Karpenter with its KWOK provider, built where it is not there yet: some three minutes of
    processor time. Its release of controller-runtime does not compile with the libraries of `kwok`,
    so the two share nothing."""
    return _apart("karpenter", HERE / "karpenter", KARPENTER_PROGRAMS) / "karpenter"


def karpenter_sources() -> Path:
    """The folder of the module that it is built from: it has the definitions of Karpenter's kinds
    and the instance types of its KWOK provider."""
    return _sources(HERE / "karpenter", KARPENTER)


def _apart(name: str, module: Path, packages: Mapping[str, str]) -> Path:
    directory = _cache() / f"{name}-{_version(module)}"
    with _alone(directory):
        for program, package in packages.items():
            if not (directory / program).exists():
                _build(directory / program, module, package)
    return directory


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
    root = _sources(HERE / "kwok", "sigs.k8s.io/kwok") / "kustomize" / "stage"
    files = [
        file
        for stage in STAGES
        for file in sorted((root / stage).glob("*.yaml"))
        if file.name != "kustomization.yaml"
    ]
    return "\n---\n".join(file.read_text() for file in files)


def _sources(module: Path, path: str) -> Path:
    """The folder of a module that `module` requires, in the cache of modules."""
    found = subprocess.run(
        ["go", "mod", "download", "-json", path],
        cwd=module,
        capture_output=True,
        text=True,
        check=True,
        env=_environment(),
    )
    return Path(json.loads(found.stdout)["Dir"])


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
