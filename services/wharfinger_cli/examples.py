"""`examples`: copies the manifests of the distribution to where they can be edited."""

from __future__ import annotations

import shutil
from pathlib import Path

import wharfinger
from wharfinger_cli.failures import CommandError
from wharfinger_cli.output import messages


def copy(directory: Path) -> None:
    """CommandError: `directory` exists, or cannot be written. Nothing is ever overwritten."""
    try:
        shutil.copytree(
            examples_dir(), directory, ignore=shutil.ignore_patterns("__pycache__", "*.pyc")
        )
    except FileExistsError:
        raise CommandError(f"{directory} exists: expected a directory to be made") from None
    except shutil.Error as error:
        raise CommandError(f"{directory}: {error.args[0][0][2]}") from error
    except OSError as error:
        raise CommandError(f"{directory}: {error.strerror or error}") from error
    messages().print(f"examples are in {directory}; start with {directory}/README.md")


def examples_dir() -> Path:
    """Beside the library when installed from a wheel, at the root of the repository otherwise.
    CommandError: they are not there."""
    package = Path(wharfinger.__file__).parent
    for candidate in (package / "examples", package.parents[1] / "examples"):
        if (candidate / "README.md").is_file():
            return candidate
    raise CommandError(f"the examples are missing beside {package}")
