"""Real control planes, started by `make test-kube`. Without them these tests name themselves as
skipped."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.kube.member import Member

from wharfinger.runtime.kube.api import KubeApi
from wharfinger.runtime.kube.kubeconfig import read_kubeconfig
from wharfinger.runtime.ledger import Ledger

VARIABLE = "WHARFINGER_TEST_KUBE"


@pytest.fixture(scope="session")
def members() -> list[Member]:
    """The clusters of this job, in order of name."""
    directory = os.environ.get(VARIABLE)
    if not directory:
        pytest.skip("needs API servers: make test-kube")
    job = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    several = Path(directory, f"set-{job}")
    own = several if any(several.glob("*/cluster.json")) else Path(directory)
    found = sorted(path.parent for path in own.glob("*/cluster.json"))
    assert found, f"no cluster runs in {own}"
    return [Member(path) for path in found]


@pytest.fixture(scope="session")
def member(members: list[Member]) -> Member:
    return members[0]


@pytest_asyncio.fixture
async def api(member: Member) -> AsyncIterator[KubeApi]:
    """As the administrator."""
    async with KubeApi(read_kubeconfig(member.kubeconfig())) as api:
        yield api


@pytest_asyncio.fixture
async def ledger(database_url: str) -> AsyncIterator[Ledger]:
    """Of the test alone."""
    ledger = await Ledger.open(database_url, "tests-kube")
    yield ledger
    await ledger.close()
