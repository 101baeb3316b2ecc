"""The kernels as machine code, when there is some.

Whoever places asks `kernels()` and gets functions: compiled ones when they are ready; until then the plain ones, or arrays' own
operations in the place of the slowest of them (`vectors`). All give the same integers: no decision shows which it was.
Compiling takes seconds on a machine's first day and is read from disk later; it begins by itself in a thread of its own once the
plain functions have had enough to do, so that a command which places a few pods never pays for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import FunctionType, SimpleNamespace
from typing import Any

from wharfinger.engine.nodes import kernels as plain

WORTH_IT = 20_000
"""So many nodes looked at by plain functions are about a tenth of a second."""


class Compiler:
    """`warm`: calls each kernel once with arrays of the kinds it will get, so that it is compiled for them. `module`: of plain
    functions, with their names in `ORDER`, callees first. `instead`: a module of those that are called in the place of plain ones
    of the same name, with their names in `INSTEAD`."""

    def __init__(self, warm: Callable[[Any], None], module: Any = plain, instead: Any = None) -> None:
        self._warm = warm
        self._module = module
        self._plain = module if instead is None else mixed(module, instead)
        self._ready: Any = None
        self._looked = 0
        self._begun = False
        self._lock = threading.Lock()
        self.failure: Exception | None = None

    def kernels(self, nodes: int) -> Any:
        """The functions of `kernels`. `nodes`: how many are about to be looked at."""
        if self._ready is not None:
            return self._ready
        self._looked += nodes
        if self._looked > WORTH_IT and not self._begun:
            self._begun = True
            threading.Thread(target=self.compile_now, name="compile-kernels", daemon=True).start()
        return self._plain

    def compile_now(self) -> None:
        """Compile in this thread. What cannot be compiled is placed by plain functions; `failure` says why."""
        with self._lock:
            self._begun = True
            if self._ready is not None or self.failure is not None:
                return
            try:
                made = jitted(self._module, cached=True)
            except RuntimeError:  # nowhere to keep the code: it is made anew by each process
                made = jitted(self._module, cached=False)
            except ImportError as why:
                self.failure = why
                return
            try:
                self._warm(made)
            except Exception as why:  # a broken compiler must not end what works without
                self.failure = why
                return
            self._ready = made


def mixed(module: Any, instead: Any) -> Any:
    """The plain functions, which call those of `instead` where there are any."""
    names: dict[str, Any] = {**vars(module)}
    for name in module.ORDER:
        names[name] = FunctionType(getattr(module, name).__code__, names, name)
    for name in instead.INSTEAD:
        names[name] = getattr(instead, name)
    return SimpleNamespace(**{name: names[name] for name in module.ORDER})


def jitted(module: Any, cached: bool) -> Any:
    """The functions of a module of kernels as machine code. Raises RuntimeError where `cached` code cannot be kept anywhere."""
    import numba  # half a second, which only those pay who place much

    names: dict[str, Any] = {**vars(module)}
    for name in module.ORDER:
        function = FunctionType(getattr(module, name).__code__, names, name)
        names[name] = numba.njit(cache=cached, nogil=True, error_model="numpy")(function)
    return SimpleNamespace(**{name: names[name] for name in module.ORDER})
