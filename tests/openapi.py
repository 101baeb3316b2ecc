"""The OpenAPI document as it was frozen. `python -m tests.openapi` (`make openapi`) writes it again
after a change that is meant."""

from __future__ import annotations

import difflib
import json
from pathlib import Path

from wharfinger_api.app import Api, create, document

FROZEN = Path(__file__).parent / "contract" / "openapi.json"


def present() -> str:
    """The document of the application as it is, in a form that is compared line by line."""
    app = create(Api.__new__(Api))
    return json.dumps(document(app), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def difference(frozen: str, now: str) -> str:
    """What has changed, with the lines around it; empty: nothing has."""
    lines = difflib.unified_diff(
        frozen.splitlines(), now.splitlines(), "frozen", "present", n=4, lineterm=""
    )
    return "\n".join(lines)


if __name__ == "__main__":
    FROZEN.write_text(present())
    print(f"wrote {FROZEN}")
