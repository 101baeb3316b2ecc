"""Compiles selectors over labels and claims. They are validated as Kubernetes' apimachinery
validates them, with its error messages.

Users search for these messages and tools compare them, so they are reproduced exactly. A selector
is compiled once and then evaluated for every cluster.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from wharfinger.domain.selection import Condition, Selector

Labels = Mapping[str, str]
Test = Callable[[Labels], bool]

NAME_LENGTH_MAX = 63
"""Maximum length, in bytes, of a label's value and of the name part of its key."""
PREFIX_LENGTH_MAX = 253

_KEY_FORMAT = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE_FORMAT = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
_PART_FORMAT = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_PREFIX_FORMAT = rf"{_PART_FORMAT}(\.{_PART_FORMAT})*"
_KEY, _VALUE, _PREFIX = (
    re.compile(f"(?:{f})") for f in (_KEY_FORMAT, _VALUE_FORMAT, _PREFIX_FORMAT)
)


class SelectorError(ValueError):
    """Raised for a selector that cannot be evaluated. The text is apimachinery's."""


def compiled(selector: Selector) -> Test | None:
    """Compiles a label selector to a function that takes labels (key -> value) and returns whether
    the selector matches them. The labels must satisfy all of matchLabels and all of
    matchExpressions. Returns None if the selector is empty and so matches everything.

    Raises SelectorError with the text of Kubernetes (apimachinery) if a key, a value or an operator
    is invalid.
    """
    for key, value in sorted(selector.labels.items()):
        _refuse(_key_problems(key) + _value_problems(key, 0, value))
    tests = [_condition(c) for c in selector.conditions]
    if selector.labels:
        wanted = dict(selector.labels)
        if len(wanted) == 1:
            ((key, value),) = wanted.items()
            tests.insert(0, lambda labels: labels.get(key) == value)
        else:
            tests.insert(0, lambda labels: all(labels.get(k) == v for k, v in wanted.items()))
    match tests:
        case []:
            return None
        case [single]:
            return single
        case _:
            return lambda labels: all(test(labels) for test in tests)


def _condition(condition: Condition) -> Test:
    key, values = condition.key, frozenset(condition.values)
    match condition.operator:
        case "In":
            test: Test = lambda labels: labels.get(key) in values  # noqa: E731
        case "NotIn":  # an absent key is in no list
            test = lambda labels: labels.get(key) not in values  # noqa: E731
        case "Exists":
            test = lambda labels: key in labels  # noqa: E731
        case "DoesNotExist":
            test = lambda labels: key not in labels  # noqa: E731
        case unknown:
            raise SelectorError(f"{quoted(unknown)} is not a valid label selector operator")
    problems = _key_problems(key)
    if condition.operator in ("In", "NotIn"):
        if not condition.values:
            problems.append(
                "values: Invalid value: null: for 'in', 'notin' operators, "
                "values set can't be empty"
            )
    elif condition.values:
        listed = "[" + ",".join(quoted(v) for v in condition.values) + "]"
        problems.append(
            f"values: Invalid value: {listed}: values set must be empty for exists and does not "
            "exist"
        )
    for i, value in enumerate(condition.values):
        problems += _value_problems(key, i, value)
    _refuse(problems)
    return test


def value_problem(key: str, value: str) -> str:
    """Returns what is wrong with a label's value, in apimachinery's words. Empty: the value is
    valid."""
    return _together(_value_problems(key, 0, value))


def _refuse(problems: list[str]) -> None:
    if problems:
        raise SelectorError(_together(problems))


def _together(problems: list[str]) -> str:
    each = list(dict.fromkeys(problems))
    return each[0] if len(each) == 1 else f"[{', '.join(each)}]" if each else ""


def _key_problems(key: str) -> list[str]:
    what = f"key: Invalid value: {quoted(key)}: "
    prefix, name = "", key
    problems: list[str] = []
    match key.split("/"):
        case [_]:
            pass
        case [prefix, name]:
            problems += [f"prefix part {p}" for p in _prefix_problems(prefix)]
        case _:
            wrong = _format_problem(_KEY_SAID, _KEY_FORMAT, "MyName", "my.name", "123-abc")
            optional = " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            return [f"{what}a valid label key {wrong}{optional}"]
    if not name:
        problems.append("name part must be non-empty")
    elif len(name.encode()) > NAME_LENGTH_MAX:
        problems.append(f"name part must be no more than {NAME_LENGTH_MAX} bytes")
    if _KEY.fullmatch(name) is None:
        problems.append(
            "name part " + _format_problem(_KEY_SAID, _KEY_FORMAT, "MyName", "my.name", "123-abc")
        )
    return [what + "; ".join(problems)] if problems else []


_KEY_SAID = (
    "must consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character"
)


def _prefix_problems(prefix: str) -> list[str]:
    if not prefix:
        return ["must be non-empty"]
    problems = []
    if len(prefix.encode()) > PREFIX_LENGTH_MAX:
        problems.append(f"must be no more than {PREFIX_LENGTH_MAX} bytes")
    if _PREFIX.fullmatch(prefix) is None:
        said = (
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, "
            "'-' or '.', and must start and"
            " end with an alphanumeric character"
        )
        problems.append(_format_problem(said, _PREFIX_FORMAT, "example.com"))
    return problems


def _value_problems(key: str, at: int, value: str) -> list[str]:
    problems = []
    if len(value.encode()) > NAME_LENGTH_MAX:
        problems.append(f"must be no more than {NAME_LENGTH_MAX} bytes")
    if _VALUE.fullmatch(value) is None:
        said = (
            "a valid label must be an empty string or consist of alphanumeric characters, '-', "
            "'_' or '.', and must start and"
            " end with an alphanumeric character"
        )
        problems.append(_format_problem(said, _VALUE_FORMAT, "MyValue", "my_value", "12345"))
    if not problems:
        return []
    return [f"values[{at}][{key}]: Invalid value: {quoted(value)}: {'; '.join(problems)}"]


def _format_problem(said: str, format: str, *examples: str) -> str:
    shown = " or ".join(f"'{e}', " for e in examples)
    return f"{said} (e.g. {shown}regex used for validation is '{format}')"


_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def quoted(text: str) -> str:
    """Returns the text in double quotes, with the escapes of Go."""
    return '"' + "".join(_ESCAPES.get(c, c) for c in text) + '"'
