"""CEL: the predicates that users write as expressions, over a managed cluster or, with `program`, over anything else that has
a name in them.

The language is a library's, in C++; what Kubernetes adds to it (quantities, semantic versions, addresses, URLs, named formats,
lists, strings) is in `cel_functions`. Two environments are asked. The first checks: there a quantity is a type of its own, so that
mistakes are found, and told in the words users know. The second runs: its values of such types are small maps with a tag, since the
library carries no others. Nothing in either reads a clock.

An evaluation is bounded. Loops share a budget of steps, texts that functions make may not grow without end, and an expression that
is too long, or joins too much together, is never asked: it matches nothing, as one over OCM's cost limit.

This module is imported only where there is an expression: the library takes its time to load.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import cel_expr_python.cel as cel
import cel_expr_python.ext.ext_optional as ext_optional

from wharfinger.engine.placement import cel_functions
from wharfinger.engine.placement.cel_functions import SCORES, Function, Overload
from wharfinger.engine.placement.fleet import Facts
from wharfinger.manifests.ocm import seen_by_expressions

VARIABLE = "managedCluster"
LENGTH_MAX = 8192
"""Characters of an expression."""
JOINS_MAX = 16
"""How many `+` it may hold: joined inside of loops, texts double with each."""
KEPT = 512
"""Compiled expressions that are kept."""


class ExpressionError(ValueError):
    """An expression that does not compile; the text is the compiler's."""


@dataclass(frozen=True, slots=True)
class Expression:
    """`program` None: too dear ever to be asked."""

    text: str
    program: cel.Expression | None
    with_scores: bool

    def holds(self, facts: Facts) -> bool:
        """Whether the result is true; anything else, an error too, is no match."""
        return self.program is not None and is_true(self.program, {VARIABLE: self._seen(facts)})

    def _seen(self, facts: Facts) -> Mapping[str, object]:
        if facts.parsed is None:
            facts.parsed = seen_by_expressions(facts.managed.manifest)
        seen = facts.parsed
        assert isinstance(seen, dict), "a manifest is an object"
        if not self.with_scores:
            return seen
        scores = {
            name: [{"name": s.name, "value": s.value} for s in given.scores] for name, given in facts.scores.items()
        }
        return {**seen, SCORES: scores}


@lru_cache(maxsize=KEPT)
def compiled(text: str) -> Expression:
    """Over a managed cluster. Raises ExpressionError."""
    found = program(text, VARIABLE)
    return Expression(text, found, found is not None and "scores" in text)


def program(text: str, variable: str) -> cel.Expression | None:
    """An expression over the map `variable`; None: too dear ever to be asked. Raises ExpressionError."""
    if len(text) > LENGTH_MAX:
        raise ExpressionError(f"expression code point size exceeds limit: size: {len(text)}, limit {LENGTH_MAX}")
    own_optionals = any(word in text for word in cel_functions.OWN_OPTIONALS)
    try:
        _checker(own_optionals, variable).compile(text)
    except RuntimeError as wrong:
        raise ExpressionError(_told(text, str(wrong))) from None
    if text.count("+") > JOINS_MAX:
        return None
    return _runner(own_optionals, variable).compile(text)


def is_true(asked: cel.Expression, data: Mapping[str, object]) -> bool:
    """Anything but true, an error too, is no."""
    try:
        result = asked.eval(data=data)
    except RuntimeError:
        return False  # the budget, or a value that the library cannot carry
    return bool(result.type() == cel.Type.BOOL and result.value() is True)


# Environments.

_T = cel.Type
_PLAIN: dict[str, cel.Type] = {
    "s": _T.STRING,
    "i": _T.INT,
    "b": _T.BOOL,
    "d": _T.DOUBLE,
    "*": _T.DYN,
    "l": _T.List(_T.DYN),
    "m": _T.Map(_T.STRING, _T.DYN),
}


@cache
def _checker(own_optionals: bool, variable: str) -> cel.Env:
    types = _PLAIN | {code: _T.AbstractType(name) for code, name in cel_functions.TYPES.items()}
    return _environment(variable, cel_functions.functions(own_optionals), types, own_optionals)


@cache
def _runner(own_optionals: bool, variable: str) -> cel.Env:
    types = _PLAIN | dict.fromkeys(cel_functions.TYPES, _PLAIN["m"])
    return _environment(variable, cel_functions.functions(own_optionals), types, own_optionals)


def _environment(
    variable: str, functions: Sequence[Function], types: Mapping[str, cel.Type], own_optionals: bool
) -> cel.Env:
    """Overloads that are one where it runs, since all tagged values are maps, are declared once: the function looks at the tags."""
    declared: list[cel.FunctionDecl] = []
    for function in functions:
        shapes: dict[tuple[bool, str], list[Overload]] = {}
        for overload in function.overloads:
            shape = overload.member, " ".join(str(types[code]) for code in overload.parameters)
            shapes.setdefault(shape, []).append(overload)
        overloads = [
            cel.Overload(
                id=f"{function.name}_{i}".replace(".", "_"),
                return_type=_result(types, alike),
                parameters=[types[code] for code in alike[0].parameters],
                is_member=alike[0].member,
                impl=function.call,
            )
            for i, alike in enumerate(shapes.values())
        ]
        declared.append(cel.FunctionDecl(function.name, overloads))
    extensions = [] if own_optionals else [ext_optional.ExtOptional()]
    return cel.NewEnv(variables={variable: _PLAIN["m"]}, extensions=extensions, functions=declared)


def _result(types: Mapping[str, cel.Type], alike: Sequence[Overload]) -> cel.Type:
    results = [types[overload.result] for overload in alike]
    return results[0] if all(result == results[0] for result in results) else _T.DYN


# What the compiler says.

_PREFIX, _SUFFIX = "INVALID_ARGUMENT: ", " [INVALID_ARGUMENT]"
_UNDECLARED = re.compile(
    r"ERROR: <input>:(?P<line>\d+):(?P<column>\d+): undeclared reference to '(?P<name>[^']*\.[^']*)'(?P<rest>[^\n]*)"
    r"(?P<source>\n \| [^\n]*)\n \| \.*\^"
)


def _told(text: str, message: str) -> str:
    """Without what the library wraps around it. A name with dots that nobody knows is told by its first part, where that stands."""
    return _UNDECLARED.sub(lambda found: _first_part(text, found), message.removeprefix(_PREFIX).removesuffix(_SUFFIX))


def _first_part(text: str, found: re.Match[str]) -> str:
    line = text.split("\n")[int(found["line"]) - 1]
    first = found["name"].split(".")[0]
    dotted = re.compile(r"\b" + r"\s*\.\s*".join(map(re.escape, found["name"].split("."))) + r"\b")
    said = int(found["column"]) - 1
    starts = [match.start() for match in dotted.finditer(line) if match.end() >= said]
    column = starts[0] if starts else said
    place = f"ERROR: <input>:{found['line']}:{column + 1}: undeclared reference to '{first}'{found['rest']}"
    return f"{place}{found['source']}\n | {'.' * column}^"
