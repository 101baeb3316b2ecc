"""The licences of what a server installs, held to a list of those that are allowed.

    python -m infra.release.licences

prints one line a package of `requirements-runtime.lock` and the other extras: name, version and
licence. It ends with 1 where a licence is not on the list or not stated.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution

from infra.release.installed import ROOT, closure_of

ALLOWED = {
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "MIT-CMU",
    "MPL-2.0",  # certifi
    "PSF-2.0",
    "Zlib",
}
"""SPDX identifiers. All of them allow to ship the package unchanged beside software under
Apache-2.0."""

SPDX = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "Repoze Public License": "BSD-3-Clause",
}
"""Classifiers of packages whose metadata has no SPDX expression. `BSD License` does not say which;
each of them is allowed."""


def licence(found: Distribution) -> str:
    """The SPDX expression; empty: the package states none that is known here."""
    metadata = found.metadata
    for expression in metadata.get_all("License-Expression") or []:
        return str(expression)
    classifiers = [
        SPDX.get(line.rsplit("::", 1)[-1].strip(), "")
        for line in metadata.get_all("Classifier") or []
        if line.startswith("License ::") and not line.endswith("OSI Approved")
    ]
    if classifiers:
        return " AND ".join(sorted(set(classifiers))) if all(classifiers) else ""
    texts = [str(text).strip() for text in metadata.get_all("License") or []]
    return next((text for text in texts if text in ALLOWED), "")


def allowed(expression: str) -> bool:
    """Every identifier of the expression is on the list, also where there is a choice."""
    names = [word for word in re.findall(r"[\w.+-]+", expression) if word not in ("AND", "OR")]
    return bool(names) and all(name in ALLOWED for name in names)


DEVELOPERS = ("dev", "fuzz")
"""Extras whose packages are part of no installation."""


def packages() -> Iterator[Distribution]:
    """What is installed with any extra but those of developers, in order of name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = [
        lines for name, lines in project["optional-dependencies"].items() if name not in DEVELOPERS
    ]
    found = closure_of([*project["dependencies"], *(line for lines in extras for line in lines)])
    yield from sorted(found, key=lambda one: one.metadata["Name"].lower())


def main() -> int:
    refused = 0
    for one in packages():
        stated = licence(one)
        if not allowed(stated):
            refused += 1
        mark = "" if allowed(stated) else "  not allowed"
        print(f"{one.metadata['Name']:<24} {one.version:<16} {stated or 'not stated'}{mark}")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
