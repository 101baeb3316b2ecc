"""What a release says about its parts: licences, and the bill of materials."""

from __future__ import annotations

import json
from importlib.metadata import Distribution
from pathlib import Path

import pytest
from infra.release.licences import allowed, licence, packages
from infra.release.sbom import write
from packaging.utils import canonicalize_name
from tests.contract.test_lock import RUNTIME, pins


@pytest.mark.parametrize("found", list(packages()), ids=lambda one: one.metadata["Name"])
def test_the_licence_of_a_package_is_allowed(found: Distribution) -> None:
    assert allowed(licence(found)), found.metadata["Name"]


def test_licences_that_are_not_on_the_list_are_refused() -> None:
    assert allowed("Apache-2.0 OR (MIT AND BSD-3-Clause)")
    assert not allowed("MIT AND GPL-3.0-only")
    assert not allowed("")


@pytest.mark.long
def test_the_bill_of_materials_names_what_the_image_installs(tmp_path: Path) -> None:
    file = write(tmp_path)
    bill = json.loads(file.read_text("utf-8"))
    assert file.name.startswith("wharfinger-")
    assert bill["bomFormat"] == "CycloneDX"
    listed = {
        canonicalize_name(c["name"]): c["version"]
        for c in bill["components"]
        if c["name"] != "wharfinger"
    }
    assert listed == pins(RUNTIME)
    assert "file:///" not in file.read_text("utf-8")
