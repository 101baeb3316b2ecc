"""The part of the build that is ours: the kernels' machine code goes into the wheel, and makes it
one of a kind of machine."""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parents[2]


class CustomBuildHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        sys.path.insert(0, str(ROOT))
        from infra.kernels import compile as kernels

        if kernels.main() or not kernels.supported():
            return
        build_data["artifacts"].append(str(kernels.TARGET.relative_to(ROOT)))
        build_data["pure_python"] = False
        # It asks no library for anything but `memset` and `sqrt`, and Python for its stable
        # interface.
        build_data["tag"] = f"cp311-abi3-manylinux_2_17_{platform.machine()}"
