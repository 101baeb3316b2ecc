"""The structure of the sources in figures. `make house` prints the table;
`tests/architecture/test_house.py` holds the figures.

Everything is read off the syntax trees of `shared` and `services`; only the modules of the
publisher are counted by starting an interpreter. A file *knows* a decision kind when its code names
the kind's class, and a node rule when its code names the plugin, as a class or as a text.
Docstrings and comments do not count, and neither does the kind's own line in the list.
"""

from __future__ import annotations

import ast
import io
import shutil
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIBRARY = (ROOT / "shared", ROOT / "services")
WIDTH = 100

LOADED_BY_NAME = ("wharfinger.rules.nodes.", "wharfinger.engine.framework.plugins.")
"""Plugins: the list of them names classes, whose modules are found by these names."""

SHOWN_KINDS = ("ScheduleDecided", "ReplicasPlaced")
SHOWN_RULES = ("TaintToleration", "InterPodAffinity", "PodTopologySpread")


@dataclass(frozen=True)
class Source:
    """One file. `module`: its dotted name."""

    path: Path
    module: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def words(self) -> frozenset[str]:
        """Names and whole texts in the code: docstrings are left out, and so is the text around a
        name."""
        found: set[str] = set()
        docs: set[int] = set()
        for node in ast.walk(self.tree):  # parents first
            match node:
                case ast.Expr(value=value):
                    docs.add(id(value))
                case (
                    ast.Name(id=name)
                    | ast.Attribute(attr=name)
                    | ast.ClassDef(name=name)
                    | ast.alias(name=name)
                ):
                    found.add(name)
                case ast.Constant(value=str(text)) if id(node) not in docs:
                    found.add(text)
                case _:
                    pass
        return frozenset(found)

    @cached_property
    def comment_lines(self) -> int:
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return sum(t.type == tokenize.COMMENT and t.line.lstrip().startswith("#") for t in tokens)

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


def sources(roots: Iterable[Path] = LIBRARY) -> list[Source]:
    found = []
    for root in roots:
        for path in sorted(root.rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found.append(Source(path, module, path.read_text()))
    return found


# --- who knows what


def kinds() -> list[str]:
    from wharfinger.events.decisions import KINDS

    return [kind.__name__ for kind in KINDS]


def node_rules() -> list[str]:
    from wharfinger.domain.scheduler_plugins import BUILT_IN

    return [plugin.name for plugin in BUILT_IN]


def knowing(found: Iterable[Source], word: str) -> list[str]:
    """The files whose code has the word, as paths from the root of the project."""
    return [str(source.path.relative_to(ROOT)) for source in found if word in source.words]


def knowing_kind(found: Iterable[Source], kind: str) -> list[str]:
    """As `knowing`, without the list of kinds."""
    return [
        path for path in knowing(found, kind) if not path.endswith("events/decisions/__init__.py")
    ]


# --- imports


def imports(found: Iterable[Source]) -> dict[str, dict[str, None]]:
    """module -> the modules of ours that it imports: at its top, within a function, or for its
    types only."""
    known = {source.module: source for source in found}
    return {module: imports_of(source.tree, known) for module, source in known.items()}


def imports_of(tree: ast.AST, known: Mapping[str, object]) -> dict[str, None]:
    """The modules among `known` that a module with this tree imports, wherever it does."""
    return dict.fromkeys(name for node in _statements(tree) for name in _imported(node, known))


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """All statements, also within others. Expressions, which are most of a tree, hold none."""
    todo = [tree]
    while todo:
        node = todo.pop()
        yield node
        for held in ("body", "orelse", "handlers", "finalbody", "cases"):
            inner = getattr(node, held, ())
            if isinstance(inner, list):  # the body of a lambda is an expression
                todo += inner


def _imported(node: ast.AST, known: Mapping[str, object]) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (name.name for name in names if name.name in known)
        case ast.ImportFrom(module=str(module), level=0, names=names):
            for name in names:
                inner = f"{module}.{name.name}"
                if inner in known:
                    yield inner
                elif module in known:
                    yield module
        case ast.ImportFrom(level=level) if level:
            raise AssertionError("relative imports are not used here: ruff's TID252")


def circles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """The sets of modules that import each other (strongly connected components, Tarjan): for a ->
    b -> a the list [a, b]."""
    index: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = lowest[name] = len(index)
        stack.append(name)
        for other in graph[name]:
            if other not in index:
                visit(other)
                lowest[name] = min(lowest[name], lowest[other])
            elif other in stack:
                lowest[name] = min(lowest[name], index[other])
        if lowest[name] == index[name]:
            start = stack.index(name)
            if len(stack) - start > 1:
                found.append(sorted(stack[start:]))
            del stack[start:]

    for name in graph:
        if name not in index:
            visit(name)
    return found


def unused(found: Iterable[Source], tests: Iterable[Source]) -> dict[str, int]:
    """module -> its lines, of those that tests import and nothing that a service runs does."""
    library = list(found)
    graph = imports(library)
    entries = [s.module for s in library if s.module.split(".")[0] != "wharfinger"]
    entries += [s.module for s in library if s.module.endswith("__main__")]
    entries += [s.module for s in library if s.module.startswith(LOADED_BY_NAME)]
    reached: set[str] = set()
    todo = [*entries]
    while todo:
        module = todo.pop()
        if module not in reached:
            reached.add(module)
            parents = [".".join(module.split(".")[:n]) for n in range(1, module.count(".") + 1)]
            todo += [m for m in (*graph.get(module, ()), *parents) if m in graph]
    texts = {s.module: s for s in library}
    named_by_text = {word for s in library for word in s.words if word in texts}
    beside = texts.keys() - reached - named_by_text
    if not beside:  # there are as many tests to parse as library
        return {}
    tested = {name for source in tests for name in imports_of(source.tree, texts)}
    return {m: len(s.lines) for m, s in texts.items() if m in beside and m in tested}


# --- figures of the text


def shared_class_names(found: Iterable[Source]) -> tuple[int, dict[str, list[str]]]:
    """How many classes there are, and name -> modules of those whose name another class has,
    too."""
    named: defaultdict[str, list[str]] = defaultdict(list)
    for source in found:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ClassDef):
                named[node.name].append(source.module)
    return sum(map(len, named.values())), {
        name: where for name, where in named.items() if len(where) > 1
    }


def class_share(found: Iterable[Source]) -> float:
    """Per cent of the classes whose name another class has, too."""
    total, twice = shared_class_names(found)
    return 100 * sum(map(len, twice.values())) / total


def defined(found: Iterable[Source], name: str) -> int:
    """How many functions have this name."""
    return sum(
        isinstance(n, ast.FunctionDef) and n.name == name for s in found for n in ast.walk(s.tree)
    )


def counted(found: Iterable[Source]) -> Counter[str]:
    """`lines`, `wide`, `comments`, `skips` (of the formatter), `assert_never`, `case _`, `NewType`,
    `ignores` (of types)."""
    total: Counter[str] = Counter()
    for source in found:
        total["lines"] += len(source.lines)
        total["wide"] += sum(len(line) > WIDTH for line in source.lines)
        total["skips"] += source.text.count("# fmt: skip")
        total["ignores"] += source.text.count("# type: ignore")
        total["comments"] += source.comment_lines
        for node in ast.walk(source.tree):
            match node:
                case ast.Call(func=ast.Name(id="assert_never" | "NewType" as name)):
                    total[name] += 1
                case ast.match_case(pattern=ast.MatchAs(pattern=None, name=None)):
                    total["case _"] += 1
                case _:
                    pass
    return total


def lines_by_package(found: Iterable[Source]) -> dict[str, int]:
    """Lines of the library, by package below `wharfinger`; services are left out."""
    total: Counter[str] = Counter()
    for source in found:
        match source.module.split("."):
            case ["wharfinger", package, *_]:
                total[package] += len(source.lines)
            case ["wharfinger"]:
                total[""] += len(source.lines)
            case _:
                pass
    return dict(sorted(total.items()))


def formatted(width: int) -> dict[str, int]:
    """As `lines_by_package`, after the formatter has put the code on lines of `width` columns.
    Texts and comments stay as they are."""
    with tempfile.TemporaryDirectory() as there:
        copy = Path(there) / "shared"
        shutil.copytree(LIBRARY[0], copy, ignore=shutil.ignore_patterns("__pycache__"))
        config = f"line-length = {width}\nformat.skip-magic-trailing-comma = true\n"
        (Path(there) / "ruff.toml").write_text(config)
        command = [sys.executable, "-m", "ruff", "format", "--quiet", str(copy)]
        subprocess.run(command, check=True)
        return lines_by_package(sources([copy]))


def loaded_by(module: str) -> int:
    """How many modules of ours an interpreter has after importing `module`."""
    code = (
        f"import sys, {module}; print(sum(m.split('.')[0].startswith('wharfinger') for m in "
        "sys.modules))"
    )
    return int(
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True
        ).stdout
    )


# --- the table


def table() -> list[tuple[str, str, str]]:
    """(measure, this tree, aim)"""
    library = sources()
    tests = sources([ROOT / "tests"])
    graph, text, everything = imports(library), counted(library), counted([*library, *tests])
    rules = {rule: len(knowing(library, rule)) for rule in node_rules()}
    of_kind = {kind: len(knowing_kind(library, kind)) for kind in kinds()}
    alone = unused(library, tests)
    found = circles(graph)
    return [
        ("files that know one node rule", _spread(rules, SHOWN_RULES), "3"),
        ("files that know one decision kind", _spread(of_kind, SHOWN_KINDS), "3"),
        ("classes that share a name", f"{class_share(library):.1f} %", "8 %"),
        ("circles of imports", f"{len(found)}{_sizes(found)}", "0"),
        (
            "functions called first_difference",
            str(defined(library, "first_difference")),
            "at most 1",
        ),
        (
            f"lines over {WIDTH} columns",
            f"{100 * text['wide'] / text['lines']:.1f} % ({text['wide']})",
            "0",
        ),
        ("`fmt: skip`, tests included", str(everything["skips"]), "40"),
        ("`fmt: skip`, library", str(text["skips"]), ""),
        ("comment lines", f"{100 * text['comments'] / text['lines']:.1f} %", ""),
        (
            "assert_never / case _ / NewType",
            f"{text['assert_never']} / {text['case _']} / {text['NewType']}",
            "",
        ),
        ("type: ignore", str(text["ignores"]), ""),
        ("modules the publisher loads", str(loaded_by("wharfinger_publisher.app")), "125"),
        ("lines of the library", f"{sum(lines_by_package(library).values()):,}", "76,000"),
        ("lines of library and services", f"{text['lines']:,}", ""),
        (
            "lines in modules that tests alone import",
            f"{sum(alone.values()):,}{_names(alone)}",
            "0",
        ),
    ]


def _spread(counts: Mapping[str, int], shown: Iterable[str]) -> str:
    named = ", ".join(f"{name} {counts[name]}" for name in shown if name in counts)
    return f"{min(counts.values())} to {max(counts.values())} ({named})"


def _sizes(found: list[list[str]]) -> str:
    return f" (of {', '.join(str(len(circle)) for circle in found)} modules)" if found else ""


def _names(modules: Mapping[str, int]) -> str:
    return (
        f" ({', '.join(m.removeprefix('wharfinger.') for m in sorted(modules))})" if modules else ""
    )


def main(arguments: list[str]) -> None:
    """Without arguments the table; with `kinds`, `rules`, `names`, `circles` or `lines` what stands
    behind the figure."""
    library = sources()
    match arguments:
        case ["kinds"]:
            for kind in kinds():
                known = knowing_kind(library, kind)
                print(f"{len(known):3} {kind}: {' '.join(known)}")
        case ["rules"]:
            for rule in node_rules():
                known = knowing(library, rule)
                print(f"{len(known):3} {rule}: {' '.join(known)}")
        case ["names"]:
            for name, where in sorted(
                shared_class_names(library)[1].items(), key=lambda item: (-len(item[1]), item[0])
            ):
                print(f"{len(where):3} {name}: {' '.join(where)}")
        case ["lines"]:
            wide = formatted(140)
            now = lines_by_package(library)
            print(f"{'':12}  {'here':>7}  at 140 columns")
            for package, count in [*now.items(), ("together", sum(now.values()))]:
                at_140 = wide.get(package, sum(wide.values()))
                print(f"{package or '__init__':12}  {count:7,}  {at_140:7,}")
        case ["circles"]:
            for circle in circles(imports(library)):
                print(f"{len(circle):3} {' '.join(circle)}")
        case _:
            rows = table()
            width = max(len(row[0]) for row in rows)
            for measure, here, aim in rows:
                print(f"{measure:{width}}  {here}" + (f"  (aim: {aim})" if aim else ""))


if __name__ == "__main__":
    main(sys.argv[1:])
