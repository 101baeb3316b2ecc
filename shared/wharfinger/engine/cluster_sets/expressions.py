"""Evaluates CEL predicates that users write as expressions: over a managed cluster or, with
`program`, over any other variable.

The CEL library is C++; the functions that Kubernetes adds (quantities, semantic versions,
addresses, URLs, named formats, lists, strings) are in `cel_functions`. There are two environments.
The first type-checks: a quantity is a type of its own there, so errors are reported in the user's
terms. The second evaluates: values of such types are small tagged maps, since the library cannot
carry other types. Neither reads a clock.

Evaluation is bounded. Loops share a budget of steps, strings that functions build have a maximum
length, and an expression that is too long or concatenates too much is never evaluated: it matches
nothing, like an expression above OCM's cost limit.

This module is imported only where there is an expression, because loading the library is slow.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import cel_expr_python.cel as cel
import cel_expr_python.ext.ext_optional as ext_optional

from wharfinger.engine.cluster_sets import cel_functions
from wharfinger.engine.cluster_sets.cel_functions import SCORES, Function, Overload
from wharfinger.engine.cluster_sets.fleet import OcmClusterFacts

VARIABLE = "managedCluster"
LENGTH_MAX = 8192
"""Maximum length of an expression, in characters."""
JOINS_MAX = 16
"""Maximum number of `+` in an expression. Inside loops, each concatenation can double the length of
a string."""
KEPT = 512
"""Maximum number of compiled expressions in the cache."""


class ExpressionError(ValueError):
    """Raised for an expression that does not compile. The text is the compiler's."""


@dataclass(frozen=True, slots=True)
class CelExpression:
    """Holds a compiled predicate over a managed cluster.

    `program` None: the expression is too costly, so it is never evaluated and matches no cluster.
    `with_scores`: the expression may read the cluster's add-on scores, so they are passed to it.
    """

    text: str
    program: cel.Expression | None
    with_scores: bool

    def holds(self, facts: OcmClusterFacts) -> bool:
        """Returns whether the predicate evaluates to true for the cluster. Any other value, and an
        error, is no match."""
        return self.program is not None and is_true(self.program, {VARIABLE: self._seen(facts)})

    def _seen(self, facts: OcmClusterFacts) -> Mapping[str, object]:
        if facts.parsed is None:
            # with it all kinds of manifests are imported
            from wharfinger.manifests.ocm import seen_by_expressions

            facts.parsed = seen_by_expressions(facts.managed.manifest)
        seen = facts.parsed
        assert isinstance(seen, dict), "a manifest is an object"
        if not self.with_scores:
            return seen
        scores = {
            name: [{"name": s.name, "value": s.value} for s in given.scores]
            for name, given in facts.scores.items()
        }
        return {**seen, SCORES: scores}


@lru_cache(maxsize=KEPT)
def compiled(text: str) -> CelExpression:
    """Compiles an expression over a managed cluster. The last `KEPT` expressions are cached. Raises
    ExpressionError if the expression is too long or does not compile."""
    found = program(text, VARIABLE)
    return CelExpression(text, found, found is not None and "scores" in text)


def program(text: str, variable: str) -> cel.Expression | None:
    """Compiles the CEL expression `text` and returns the compiled expression. The expression may
    use one variable, a map. `variable`: the name of this variable.

    Returns None if the expression contains the character `+` more than `JOINS_MAX` times. Each `+`
    in a loop can double the length of a string, so such an expression is never evaluated. Raises
    ExpressionError if the expression is longer than `LENGTH_MAX` characters or does not compile.
    """
    if len(text) > LENGTH_MAX:
        raise ExpressionError(
            f"expression code point size exceeds limit: size: {len(text)}, limit {LENGTH_MAX}"
        )
    own_optionals = any(word in text for word in cel_functions.OWN_OPTIONALS)
    try:
        _checker(own_optionals, variable).compile(text)
    except RuntimeError as wrong:
        raise ExpressionError(_told(text, str(wrong))) from None
    if text.count("+") > JOINS_MAX:
        return None
    return _runner(own_optionals, variable).compile(text)


def is_true(asked: cel.Expression, data: Mapping[str, object]) -> bool:
    """Returns whether the expression evaluates to true for `data` (variable name -> value). Any
    other value, and an error, counts as false."""
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
    """Builds a CEL environment with one map variable and the given functions.

    `variable`: the name of the variable.
    `functions`: the functions with their overloads. An `Overload` is one signature; it names each
      parameter type by a letter.
    `types`: letter -> CEL type.
    `own_optionals`: whether the expression uses our own implementation of optional values. If so,
      the CEL library's extension for optional values is left out.

    Types that CEL does not have (quantity, version, IP) are represented at evaluation as maps with
    a tag, for example `{"@semver": "1.2.3"}`. So two overloads of one function can have equal CEL
    parameter types. These overloads are declared to CEL as one. When it is called, the Python
    function finds out from the tags which overload is meant.
    """
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
    r"ERROR: <input>:(?P<line>\d+):(?P<column>\d+): undeclared reference to "
    r"'(?P<name>[^']*\.[^']*)'(?P<rest>[^\n]*)"
    r"(?P<source>\n \| [^\n]*)\n \| \.*\^"
)


def _told(text: str, message: str) -> str:
    """Returns the compiler's message without the text that the library adds around it. If the
    message reports an unknown name with dots, such as `a.b.c`, it is changed to report the first
    part, `a`, at the position of that part."""
    return _UNDECLARED.sub(
        lambda found: _first_part(text, found), message.removeprefix(_PREFIX).removesuffix(_SUFFIX)
    )


def _first_part(text: str, found: re.Match[str]) -> str:
    line = text.split("\n")[int(found["line"]) - 1]
    first = found["name"].split(".")[0]
    dotted = re.compile(r"\b" + r"\s*\.\s*".join(map(re.escape, found["name"].split("."))) + r"\b")
    said = int(found["column"]) - 1
    starts = [match.start() for match in dotted.finditer(line) if match.end() >= said]
    column = starts[0] if starts else said
    place = (
        f"ERROR: <input>:{found['line']}:{column + 1}: undeclared reference to "
        f"'{first}'{found['rest']}"
    )
    return f"{place}{found['source']}\n | {'.' * column}^"
