"""The optional parts of the distribution: packages that a server does not need.

`pyproject.toml` lists what each extra installs. Code that needs such a package calls `require`
before it imports it, so that a missing one is a line with the remedy and no traceback.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal

from wharfinger.runtime.backends import BackendError

Extra = Literal["local", "migrate", "reports"]


class MissingExtraError(BackendError):
    """A package of an extra is not installed. The message is one line and names the remedy."""


def installed(package: str) -> bool:
    """Whether `package`, a name as it is imported, can be imported. It is not imported."""
    return find_spec(package) is not None


def require(extra: Extra, package: str, what: str) -> None:
    """MissingExtraError: `package` is not installed, so `what` cannot be done."""
    if not installed(package):
        raise MissingExtraError(f"{what} {remedy(extra, package)}")


def remedy(extra: Extra, package: str) -> str:
    """The end of a sentence: what is needed, and how it is installed."""
    return f"needs {package}: install it with pip install 'wharfinger[{extra}]'"
