"""Same inputs, same bytes: what Python makes easy and a decision must not do is not in the code
that decides.

Import contracts keep clocks and chance out by module; this reads the code below the runtime for
what needs no import. A loop over a set whose order cannot reach a result may say so: a comment `#
any order: <why>` on its line.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

LIBRARY = Path(__file__).parents[2] / "shared" / "wharfinger"
PURE = ("domain", "manifests", "events", "rules", "engine", "kernel", "stages")
FILES = sorted(path for layer in PURE for path in (LIBRARY / layer).rglob("*.py"))

EXCUSE = "# any order:"
UNSTABLE_NAMES = {"uuid1", "uuid4", "urandom", "token_bytes", "token_hex", "default_rng"}
CLOCK_CALLS = {"now", "utcnow", "today"}
CLOCKS = {"datetime", "date", "dt"}
FLOAT_REDUCTIONS = {
    "mean",
    "average",
    "nanmean",
    "dot",
    "vdot",
    "inner",
    "einsum",
    "matmul",
    "tensordot",
    "std",
    "var",
    "trapz",
}
JIT_OPTIONS = {"fastmath", "parallel"}
ORDER_FREE = {"all", "any", "frozenset", "len", "max", "min", "set", "sorted", "sum"}
SETS = {"set", "frozenset"}
SET_TYPES = {"set", "frozenset", "Set", "AbstractSet", "MutableSet"}
MAKES_ORDER = {"list", "tuple", "iter", "enumerate", "zip", "dict", "map", "filter"}

Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Module


@dataclass(frozen=True)
class Finding:
    line: int
    text: str


def findings(source: str) -> list[Finding]:
    tree = ast.parse(source)
    lines = source.splitlines()
    found = [*unstable_calls(tree), *set_iterations(tree)]
    return sorted((f for f in found if EXCUSE not in lines[f.line - 1]), key=lambda f: f.line)


def unstable_calls(tree: ast.Module) -> Iterator[Finding]:
    own_keys = {
        call for method in ast.walk(tree) if _says_its_hash(method) for call in ast.walk(method)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="hash")) if node not in own_keys:
                yield Finding(
                    node.lineno, "hash() differs from process to process; use stable_hash"
                )
            case ast.keyword(arg="key", value=ast.Name(id="hash" | "id" as name)):
                yield Finding(
                    node.value.lineno, f"{name} orders by what differs from process to process"
                )
            case ast.Tuple(elts=parts) if any(_is_address(part) for part in parts):
                yield Finding(
                    node.lineno, "id() in a tuple: an address is given again; count changes"
                )
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in UNSTABLE_NAMES:
                yield Finding(
                    node.lineno, f"{name} is chance; ids and seeds are derived from causes"
                )
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=owner) | ast.Attribute(attr=owner), attr=name)
            ) if name in CLOCK_CALLS and owner in CLOCKS:
                yield Finding(node.lineno, f"{owner}.{name}() is a clock; time is the round's `at`")
            case ast.Call(func=ast.Attribute(attr=name)) if name in FLOAT_REDUCTIONS:
                yield Finding(node.lineno, f"{name}() adds in an order that depends on the CPU")
            case ast.BinOp(op=ast.MatMult()):
                yield Finding(node.lineno, "@ adds in an order that depends on the CPU")
            case ast.keyword(arg=name, value=ast.Constant(value=True)) if name in JIT_OPTIONS:
                yield Finding(
                    node.value.lineno, f"{name}=True lets the compiler reorder arithmetic"
                )


def _is_address(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "id"


def _says_its_hash(node: ast.AST) -> bool:
    """By which dictionaries find a key, and which orders nothing."""
    return isinstance(node, ast.FunctionDef) and node.name == "__hash__"


def set_iterations(tree: ast.Module) -> Iterator[Finding]:
    scopes: list[Scope] = [
        tree,
        *(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)),
    ]
    for scope in scopes:
        sets = set_names(scope)
        excused = {id(g) for node in own_nodes(scope) for g in excused_generators(node)}
        for node in own_nodes(scope):
            for iterable in ordered_reads(node, excused):
                if is_set(iterable, sets):
                    yield Finding(
                        iterable.lineno,
                        f"the order of the set `{ast.unparse(iterable)}` is not the same "
                        "everywhere",
                    )


def own_nodes(scope: Scope) -> Iterator[ast.AST]:
    """What belongs to a scope and not to a function inside it."""
    waiting: list[ast.AST] = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            waiting.extend(ast.iter_child_nodes(node))


def ordered_reads(node: ast.AST, excused: set[int]) -> Iterator[ast.expr]:
    """Expressions whose order this node takes over."""
    match node:
        case ast.For(iter=iterable):
            yield iterable
        case (
            ast.ListComp(generators=generators)
            | ast.DictComp(generators=generators)
            | ast.GeneratorExp(generators=generators)
        ) if id(node) not in excused:
            yield from (g.iter for g in generators)
        case ast.Call(func=ast.Name(id=name), args=arguments) if name in MAKES_ORDER:
            yield from arguments
        case ast.Call(func=ast.Attribute(attr="join" | "extend" | "fromkeys"), args=arguments):
            yield from arguments
        case ast.Starred(value=value):
            yield value


def excused_generators(node: ast.AST) -> Iterator[ast.AST]:
    """Comprehensions fed at once to something that does not see their order."""
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ORDER_FREE
    ):
        yield from (a for a in node.args if isinstance(a, ast.GeneratorExp | ast.ListComp))


def set_names(scope: Scope) -> set[str]:
    """Local names that hold sets, as far as assignments and annotations in this scope tell."""
    names: set[str] = set()
    if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
        arguments = [*scope.args.posonlyargs, *scope.args.args, *scope.args.kwonlyargs]
        names |= {
            a.arg for a in arguments if a.annotation is not None and is_set_type(a.annotation)
        }
    for node in own_nodes(scope):
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation) if is_set_type(
                annotation
            ):
                names.add(name)
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if is_set(value, names):
                names.add(name)
    return names


def is_set_type(annotation: ast.expr) -> bool:
    match annotation:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in SET_TYPES
        case ast.Subscript(value=value):
            return is_set_type(value)
    return False


def is_set(node: ast.expr, names: set[str]) -> bool:
    match node:
        case ast.Set() | ast.SetComp():
            return True
        case ast.Call(func=ast.Name(id=name)):
            return name in SETS
        case ast.Name(id=name):
            return name in names
        case ast.BinOp(
            left=left, op=ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor(), right=right
        ):
            return is_set(left, names) or is_set(right, names)
    return False


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(LIBRARY)))
def test_nothing_below_the_runtime_depends_on_the_process_it_runs_in(path: Path) -> None:
    found = findings(path.read_text(encoding="utf-8"))
    assert not found, "\n".join(f"{path}:{f.line}: {f.text}" for f in found)


@pytest.mark.parametrize(
    "source",
    [
        "key = hash(name)",
        "order = sorted(nodes, key=id)",
        "stamp = (table.version, id(table.objects))",
        "event = uuid4()",
        "event = uuid.uuid4()",
        "at = datetime.now(UTC)",
        "at = datetime.datetime.now()",
        "day = date.today()",
        "load = np.mean(loads)",
        "load = loads.mean()",
        "score = weights @ loads",
        "f = njit(fastmath=True)(g)",
        "for name in {'a', 'b'}: place(name)",
        "for name in set(names): place(name)",
        "names = list({n for n in nodes})",
        "def f():\n    seen = set()\n    for name in seen:\n        place(name)",
        "def f(seen: frozenset[str]):\n    return [place(n) for n in seen]",
        "def f(seen: set[str], more: set[str]):\n    return ','.join(seen | more)",
        "first = next(iter({1, 2}))",
        "def f(a: set[str]):\n    return [*a]",
    ],
)
def test_what_would_make_two_runs_differ_is_found(source: str) -> None:
    assert findings(source)


@pytest.mark.parametrize(
    "source",
    [
        "for name in sorted({'a', 'b'}): place(name)",
        "known = name in {'a', 'b'}",
        "def f(seen: set[str]):\n    return any(n.bad for n in seen)",
        "def f(seen: set[str]):\n    return sorted(n for n in seen)",
        "def f(seen: set[str]):\n    return {n.name for n in seen}",
        (
            "def f(seen: set[str]):\n    for n in seen:  # any order: each is dropped by itself\n"
            "        drop(n)"
        ),
        "digest = hashlib.sha256(b'')",
        "total = int(free.sum())",
    ],
)
def test_what_cannot_make_them_differ_is_let_be(source: str) -> None:
    assert not findings(source)
