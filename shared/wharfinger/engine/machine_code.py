"""The kernels as machine code that is shipped with the distribution, with plain functions as
fallback.

`kernels(module)` returns the functions of a kernel module: those of `_kernels`, which
`infra/kernels/compile.py` builds, if it was built from exactly the source that is imported;
otherwise the Python functions, with NumPy versions of the slowest (`instead`). All give the same
integers, so no decision depends on which one runs. Nothing is compiled at run time.

A kernel module declares in `SIGNATURES` its exported functions and the types of their arguments,
one word each: a letter for the element type (`i` int64, `u` uint64, `f` float64, `w` int32, `b`
int8) and the number of dimensions, 0 for a scalar; or the name of a named tuple whose fields have
such types. Arrays are writable and C-contiguous.
"""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Annotated, Any

Int1 = Annotated[Any, "i1"]
Int2 = Annotated[Any, "i2"]
Int3 = Annotated[Any, "i3"]
Word2 = Annotated[Any, "w2"]
Byte1 = Annotated[Any, "b1"]
Byte2 = Annotated[Any, "b2"]
Bits2 = Annotated[Any, "u2"]

MODULES = tuple(
    f"wharfinger.engine.{package}.kernels"
    for package in ("nodes", "devices", "disruption", "provisioning")
)
"""All modules of kernels."""


def kernels(module: ModuleType, instead: ModuleType | None = None) -> Any:
    """Returns the functions of a kernel module, by name. They are the compiled ones if the machine
    code was built from exactly the imported source, otherwise the plain Python ones. `instead`: a
    module with NumPy versions; its functions listed in `INSTEAD` replace the plain ones of the same
    name."""
    return plain(module, instead) if why_plain(module.__name__) else compiled(module)


def compiled(module: ModuleType) -> Any:
    """Returns the compiled functions from `_kernels`. Raises ImportError if it is not installed."""
    from wharfinger.engine import _kernels

    package = module.__name__.split(".")[-2]
    return SimpleNamespace(
        **{name: getattr(_kernels, f"{package}_{name}") for name in module.SIGNATURES}
    )


def plain(module: ModuleType, instead: ModuleType | None = None) -> Any:
    """Returns the functions of a kernel module as Python code, by name. Functions that `instead`
    replaces are also replaced where the other functions call them."""
    names: dict[str, Any] = {**vars(module)}
    for name in module.ORDER:
        names[name] = FunctionType(getattr(module, name).__code__, names, name)
    for name in instead.INSTEAD if instead is not None else ():
        names[name] = getattr(instead, name)
    return SimpleNamespace(**{name: names[name] for name in module.ORDER})


def why_plain(name: str) -> str:
    """Returns why the Python functions of a kernel module are used instead of machine code; empty
    if the machine code is used. There are two reasons: the installation has no machine code, or the
    machine code was built from other source. The source is compared by its SHA-256 hash. `name`:
    the full name of the kernel module."""
    try:
        from wharfinger.engine import _kernels
    except ImportError as why:
        return f"there is no machine code of the kernels in this installation ({why})"
    # In a checkout the source may have been edited since; then the source is right.
    found = find_spec(name)
    assert found is not None, name
    source: bytes = getattr(found.loader, "get_data")(found.origin)  # noqa: B009
    if f"{name}={hashlib.sha256(source).hexdigest()}" not in _kernels.SOURCES.split():
        return f"the machine code is of another version of {name}; make setup compiles it"
    return ""
