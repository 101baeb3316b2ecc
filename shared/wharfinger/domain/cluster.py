"""What is known of a member cluster."""

from __future__ import annotations

from wharfinger.domain.taints import Taint
from wharfinger.domain.value import Name, Value


class ResourceSummary(Value, frozen=True):
    """A cluster's totals as its agent reports them, used where no nodes are reported. Units: `domain.resources`."""

    allocatable: dict[str, int] = {}
    allocated: dict[str, int] = {}
    allocating: dict[str, int] = {}


class Cluster(Value, frozen=True):
    """A member cluster's facts: the whole state of its key on `wharfinger.clusters`.

    `api_kinds`: enabled kinds as `group/version/Kind` (`v1/Pod`, `apps/v1/Deployment`); None: not reported, so unknown
    and not filtered on. `lease_s`: how long its silence is normal; None: it promised nothing and is never called silent.
    """

    name: Name
    labels: dict[str, str] = {}
    provider: str = ""
    region: str = ""
    zones: tuple[str, ...] = ()
    taints: tuple[Taint, ...] = ()
    api_kinds: tuple[str, ...] | None = None
    lease_s: int | None = None
    deleting: bool = False
    summary: ResourceSummary | None = None
