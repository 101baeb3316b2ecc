"""Price lists of clouds. For AWS a second file describes the instance types; for Azure and Google
their sizes are read from their names.

Where sizes come from names, a machine of unknown size is left out. None of the three price lists
says in which zones a type is offered: the operator names the zones (`--zones`), or each type is
taken to be offered in all zones that a region usually has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from wharfinger.domain.instance_types import CapacityType, InstanceType, Offering
from wharfinger.domain.quantities import parse_milli
from wharfinger.domain.resources import GPU, Device
from wharfinger_cli.catalogue_terms import (
    ARCH,
    OS,
    PODS,
    REGION,
    CatalogueTerms,
    Read,
    amount_in,
    left_out,
    nothing_added,
    offered,
    priced,
    some,
)
from wharfinger_cli.failures import CommandError
from wharfinger_cli.tables import TableRow, header_of, rows

MEBIBYTE = 1 << 20

# --- AWS: what types are, and what they cost on demand in a region.

_AWS_TYPES = (
    "instance_type",
    "cpu_count",
    "memory_mib",
    "arch",
    "alloc_cpu",
    "alloc_memory",
    "alloc_pods",
)
AWS_PRICES = ("region", "instance_type", "price_per_hour", "currency")
_AWS_LABELS = {
    "instance-category": "category",
    "instance-family": "family",
    "instance-generation": "generation",
    "instance-cpu": "cpu_count",
    "instance-cpu-manufacturer": "cpu_manufacturer",
    "instance-memory": "memory_mib",
    "instance-network-bandwidth": "network_mbps",
    "instance-ebs-bandwidth": "ebs_mbps",
    "instance-local-nvme": "local_nvme_gb",
}
_AWS_GPU_LABELS = {
    "instance-gpu-name": "gpu_name",
    "instance-gpu-count": "gpu_count",
    "instance-gpu-memory": "gpu_memory_mib",
}
"""By which label of Karpenter's AWS provider (`karpenter.k8s.aws/`) a column is known."""
_AMD = "amd.com/gpu"


def aws(paths: Sequence[Path], asked: CatalogueTerms) -> Read:
    nothing_added(asked, overhead="the file says what pods can have")
    machines = _the_one(
        paths, _AWS_TYPES, "a file of instance types, with alloc_cpu and alloc_memory"
    )
    priced = _the_one(
        paths, AWS_PRICES, "a file of prices, with region, price_per_hour and currency"
    )
    region, prices = _of_region(
        ((row.name("region"), row) for row in rows(priced, AWS_PRICES)), asked, priced
    )
    cost = {row.name("instance_type"): _dollars(row) for row in prices}
    zones = [f"{region}{zone}" for zone in asked.zones or ("a", "b", "c")]
    types: list[InstanceType] = []
    unpriced: list[str] = []
    known: set[str] = set()
    for row in rows(machines, _AWS_TYPES, unique="instance_type"):
        name = row.name("instance_type")
        known.add(name)
        if name not in cost:
            unpriced.append(name)
            continue
        offerings = [Offering(zone, "on-demand", cost[name]) for zone in zones]
        types.append(offered(_aws_type(row, region), offerings, asked))
    return Read(
        tuple(types),
        (
            *left_out(unpriced, f"no price in {region}"),
            *left_out(cost.keys() - known, "a price, and nothing of what they are"),
            f"every type is taken to be offered in {', '.join(zones)}: the files do not say",
        ),
    )


def _dollars(row: TableRow) -> int:
    if row.optional("currency") != "USD":
        raise row.error("currency", "USD", row.optional("currency"))
    return priced(row, "price_per_hour")


def _aws_type(row: TableRow, region: str) -> InstanceType:
    has = {"cpu": row.number("cpu_count") * 1000, "memory": row.number("memory_mib") * MEBIBYTE}
    gives = {
        "cpu": amount_in(row, "alloc_cpu", parse_milli),
        "memory": amount_in(row, "alloc_memory"),
    }
    for name, amount in gives.items():
        if amount > has[name]:
            raise row.error(
                f"alloc_{name}", "no more than the machine has", row.optional(f"alloc_{name}")
            )
    storage = (
        amount_in(row, "alloc_ephemeral_storage") if row.optional("alloc_ephemeral_storage") else 0
    )
    gpus = row.devices("alloc_nvidia_gpu", default=0)
    kind, gpus = (GPU, gpus) if gpus else (_AMD, _amd_gpus(row))
    columns = _AWS_LABELS | (_AWS_GPU_LABELS if gpus else {})
    labels = {
        f"karpenter.k8s.aws/{label}": row.optional(column) for label, column in columns.items()
    }
    labels["karpenter.k8s.aws/instance-size"] = row.name("instance_type").partition(".")[2]
    labels |= {ARCH: row.name("arch"), OS: "linux", REGION: region}
    return InstanceType(
        row.name("instance_type"),
        some(**has, ephemeral_storage=storage, pods=row.number("alloc_pods"))
        | (
            {"aws.amazon.com/neuron": neuron}
            if (neuron := row.number("alloc_neuron", default=0))
            else {}
        ),
        some(**{name: has[name] - gives[name] for name in has}),
        {name: (value,) for name, value in sorted(labels.items()) if value},
        devices=(Device(row.optional("gpu_name"), kind),) * gpus,
    )


def _amd_gpus(row: TableRow) -> int:
    """The file counts NVIDIA's by what pods can have, AMD's only by what is there."""
    return (
        row.devices("gpu_count", default=0) if row.optional("gpu_name").startswith("radeon") else 0
    )


def _the_one(paths: Sequence[Path], columns: Sequence[str], what: str) -> Path:
    found = [path for path in paths if set(columns) <= set(header_of(path))]
    if len(found) != 1:
        raise CommandError(f"{', '.join(map(str, paths))}: expected {what}, once; got {len(found)}")
    return found[0]


def _of_region(
    told: Iterable[tuple[str, TableRow]], asked: CatalogueTerms, path: Path
) -> tuple[str, list[TableRow]]:
    """The rows of the region that was asked for, or of the only one there is."""
    by_region: dict[str, list[TableRow]] = {}
    for region, row in told:
        by_region.setdefault(region, []).append(row)
    region = asked.region or (next(iter(by_region)) if len(by_region) == 1 else "")
    if region not in by_region:
        shown = ", ".join(sorted(by_region)[:40])
        raise CommandError(
            f"{path}: expected --region with one of {shown}, got {asked.region or 'none'}"
        )
    return region, by_region[region]


# --- Azure and Google: prices by region, and sizes as far as the names give them.

Size = tuple[int, int, str]
"""vCPUs, MiB, architecture."""


def azure(paths: Sequence[Path], asked: CatalogueTerms) -> Read:
    return _by_name(paths, asked, "vm_sku", _azure_prices, azure_size, "-", ("1", "2", "3"))


def gcp(paths: Sequence[Path], asked: CatalogueTerms) -> Read:
    if asked.spot_factor is not None:
        raise CommandError(
            "--spot-factor: expected only where a file has no spot prices, and this one has"
        )
    return _by_name(paths, asked, "machine_type", _gcp_prices, gcp_size, "-", ("a", "b", "c"))


def _azure_prices(row: TableRow) -> list[tuple[CapacityType, int]]:
    return [("on-demand", priced(row, "usd_per_hour"))]


def _gcp_prices(row: TableRow) -> list[tuple[CapacityType, int]]:
    return [
        ("on-demand", priced(row, "on_demand_usd_per_hour")),
        ("spot", priced(row, "spot_usd_per_hour")),
    ]


def _by_name(
    paths: Sequence[Path],
    asked: CatalogueTerms,
    column: str,
    priced: Callable[[TableRow], list[tuple[CapacityType, int]]],
    sized: Callable[[str], Size | None],
    dash: str,
    usual_zones: tuple[str, ...],
) -> Read:
    if len(paths) != 1:
        raise CommandError(f"{paths[1]}: expected one file of prices, got {len(paths)}")
    region, found = _of_region(
        ((r.name("region"), r) for r in rows(paths[0], ("region", column))), asked, paths[0]
    )
    zones = [f"{region}{dash}{zone}" for zone in asked.zones or usual_zones]
    types: dict[str, InstanceType] = {}
    unknown: list[str] = []
    for row in found:
        name = row.name(column)
        if name in types:
            raise row.error(column, "each type once in a region", name)
        if (size := sized(name)) is None:
            unknown.append(name)
            continue
        offerings = [Offering(zone, way, price) for way, price in priced(row) for zone in zones]
        types[name] = offered(_by_size(name, size, region, asked), offerings, asked)
    remarks = [
        *left_out(unknown, "what they hold cannot be told from their names"),
        f"every type is taken to be offered in {', '.join(zones)}: the file does not say",
    ]
    if not asked.overhead:
        remarks.append(
            "pods are taken to get all of a machine; --overhead says what its kubelet keeps"
        )
    return Read(tuple(types.values()), tuple(remarks))


def _by_size(name: str, size: Size, region: str, asked: CatalogueTerms) -> InstanceType:
    cpus, mebibytes, arch = size
    capacity = {"cpu": cpus * 1000, "memory": mebibytes * MEBIBYTE, "pods": asked.pods or PODS}
    kept = {name: min(amount, capacity.get(name, 0)) for name, amount in asked.overhead.items()}
    return InstanceType(
        name, capacity, some(**kept), {ARCH: (arch,), OS: ("linux",), REGION: (region,)}
    )


_AZURE = re.compile(r"Standard_([DEF])([0-9]{1,3})([a-z]*)_v([2-6])")


def azure_size(sku: str) -> Size | None:
    """Of the general (D), memory (E) and compute (F) series, whose memory is a fixed multiple of
    their vCPUs. None: another series, or a size of it that is an exception."""
    found = _AZURE.fullmatch(sku)
    if found is None:
        return None
    series, cpus, features, version = found[1], int(found[2]), found[3], int(found[4])
    arch = "arm64" if "p" in features else "amd64"
    if set(features) - set("adlmps") or not cpus:
        return None
    match series, version:
        case "D", 3 | 4 | 5 | 6 if "m" not in features and cpus <= 96:
            per_cpu = 2 if "l" in features else 4
        case "E", 3 | 4 | 5 | 6 if not set(features) & set("lm") and cpus <= 48:
            per_cpu = 8
        case "F", 2 if features == "s":
            per_cpu = 2
        case "F", 6 if "a" in features and cpus <= 64:
            per_cpu = 8 if "m" in features else 2 if "l" in features else 4
        case _:
            return None
    return cpus, cpus * per_cpu * 1024, arch


_GCP = re.compile(r"([a-z][0-9][a-z]?)-(standard|highmem|highcpu)-([0-9]{1,3})(-lssd)?")
_GCP_MIB = {
    ("n1", "standard"): 3840,
    ("n1", "highmem"): 6656,
    ("e2", "standard"): 4096,
    ("e2", "highmem"): 8192,
    ("e2", "highcpu"): 1024,
    ("n2", "standard"): 4096,
    ("n2", "highmem"): 8192,
    ("n2", "highcpu"): 1024,
    ("n2d", "standard"): 4096,
    ("n2d", "highmem"): 8192,
    ("n2d", "highcpu"): 1024,
    ("n4", "standard"): 4096,
    ("n4", "highmem"): 8192,
    ("n4", "highcpu"): 2048,
    ("t2d", "standard"): 4096,
    ("t2a", "standard"): 4096,
    ("c2", "standard"): 4096,
    ("c2d", "standard"): 4096,
    ("c2d", "highmem"): 8192,
    ("c2d", "highcpu"): 2048,
    ("c3", "standard"): 4096,
    ("c3", "highmem"): 8192,
    ("c3", "highcpu"): 2048,
    ("c3d", "standard"): 4096,
    ("c3d", "highmem"): 8192,
    ("c4a", "standard"): 4096,
    ("c4a", "highmem"): 8192,
    ("c4a", "highcpu"): 2048,
}
"""MiB a vCPU, of families in which it is the same for every size but those in `_GCP_OTHERWISE`."""
_GCP_OTHERWISE = frozenset({"n2-highmem-128"})
_GCP_ARM = frozenset({"t2a", "c4a"})


def gcp_size(name: str) -> Size | None:
    """Of machine types whose last number is their vCPUs, and whose memory is a fixed multiple of
    it. None: another family."""
    found = _GCP.fullmatch(name)
    if found is None or name in _GCP_OTHERWISE:
        return None
    family, cpus = found[1], int(found[3])
    per_cpu = _GCP_MIB.get((family, found[2]))
    if per_cpu is None or not cpus:
        return None
    return cpus, cpus * per_cpu, "arm64" if family in _GCP_ARM else "amd64"
