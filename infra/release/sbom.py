"""The bill of materials of a server: CycloneDX JSON of the wheel with the extra `migrate`, as the
image has it.

    python -m infra.release.sbom dist
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from infra.release.installed import ROOT, build_wheel, install

EXTRA = "migrate"


def write(directory: Path) -> Path:
    """The file, named after the wheel. The same packages give the same bytes."""
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        wheel = build_wheel(Path(scratch))
        python = install(wheel, Path(scratch) / "venv", EXTRA)
        target = directory / f"{'-'.join(wheel.name.split('-')[:2])}.cdx.json"
        subprocess.run(
            [
                *(sys.executable, "-m", "cyclonedx_py", "environment", str(python)),
                *("--pyproject", str(ROOT / "pyproject.toml"), "--output-reproducible"),
                *("--output-format", "JSON", "--output-file", str(target)),
            ],
            check=True,
        )
    return target


if __name__ == "__main__":
    print(write(Path(sys.argv[1])))
