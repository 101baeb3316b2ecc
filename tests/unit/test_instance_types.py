"""Files of instance types: what each form becomes, what is left out and said, and how a bad row is
named."""

from __future__ import annotations

import gzip
import json
import os
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.domain.instance_types import Catalogue, InstanceType, Offering
from wharfinger.domain.policy import Policy
from wharfinger.domain.resources import Device
from wharfinger.domain.value import canonical
from wharfinger_cli.catalogue_clouds import azure_size, gcp_size
from wharfinger_cli.catalogue_files import form_of, read
from wharfinger_cli.catalogue_terms import CatalogueTerms, Read, price_of
from wharfinger_cli.failures import CommandError
from wharfinger_cli.instance_types import PART_BYTES, ImportOptions, asked, parts_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "karpenter" / "instance-types.csv"
DATA = Path(os.environ.get("WHARFINGER_DATA") or Path(__file__).parents[3] / "shared" / "data")
needs_data = pytest.mark.skipif(
    not (DATA / "aws_ec2").is_dir(), reason="no data folder ($WHARFINGER_DATA)"
)

MI, GI = 2**20, 2**30
HEAD = "instance_type,cpu,memory,zone,capacity_type,price_per_hour"
AWS_TYPES = (
    "instance_type,cpu_count,memory_mib,arch,category,family,gpu_name,gpu_count,alloc_cpu,alloc_memory,"
    "alloc_ephemeral_storage,alloc_pods,alloc_nvidia_gpu,alloc_neuron\n"
    "m5.large,2,8192,amd64,m,m5,,,1930m,6903Mi,17Gi,29,,\n"
    "g5.xlarge,4,16384,amd64,g,g5,a10g,1,3920m,14162Mi,17Gi,58,1,\n"
    "g4ad.8xlarge,32,131072,amd64,g,g4ad,radeon-pro-v520,2,31850m,118Gi,17Gi,234,,\n"
    "inf1.6xlarge,24,49152,amd64,inf,inf1,,,23870m,42Gi,17Gi,234,,4\n"
    "old.large,2,8192,amd64,m,m5,,,1930m,6903Mi,17Gi,29,,\n"
)
AWS_PRICES = (
    "region,instance_type,price_per_hour,currency,as_of\n"
    "north,m5.large,0.096000,USD,x\nnorth,g5.xlarge,1.006,USD,x\nnorth,g4ad.8xlarge,1.734,USD,x\n"
    "north,inf1.6xlarge,1.18,USD,x\nnorth,secret.large,1,USD,x\neast,m5.large,0.7,CNY,x\n"
)


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def table(
    tmp_path: Path, text: str, extra: CatalogueTerms | None = None, form: str = "auto"
) -> Read:
    return read([written(tmp_path / "t.csv", text)], form, extra or CatalogueTerms())


def by_name(found: Read) -> dict[str, InstanceType]:
    return {kind.name: kind for kind in found.types}


# Prices.


@pytest.mark.parametrize(
    ("text", "price"),
    [
        ("0.096", 96_000_000),
        ("0", 0),
        ("1", 10**9),
        ("0.0000000005", 1),
        ("0.00000000049", 0),
        ("1e-3", 10**6),
    ],
)
def test_prices_are_exact_to_a_billionth(text: str, price: int) -> None:
    assert price_of(text) == price


@pytest.mark.parametrize("text", ["", "cheap", "-1", "nan", "inf", "1000001", "1,5"])
def test_what_is_no_price_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a price"):
        price_of(text)


@given(st.integers(0, 10**15))
def test_a_price_in_billionths_comes_back(price: int) -> None:
    assert price_of(str(Decimal(price) / 10**9)) == price


# The table of ours.


def test_a_row_is_an_offering_and_types_are_put_together(tmp_path: Path) -> None:
    found = table(
        tmp_path,
        f"{HEAD},arch,os,pods,overhead_cpu,overhead_memory,gpu_count,gpu_model,label:example.com/rack,capacity:example.com/fuse\n"
        "b,2,8Gi,z1,spot,0.03,amd64,linux|windows,29,70m,1Gi,2,T4,r1,4\n"
        "b,2,8Gi,z1,on-demand,0.1,amd64,linux|windows,29,70m,1Gi,2,T4,r1,4\n"
        "a,1,2Gi,z2,on-demand,0.05,,,,,,,,,\n",
    )
    assert found.types == (
        InstanceType(
            "a",
            {"cpu": 1000, "memory": 2 * GI, "pods": 110},
            offerings=(Offering("z2", "on-demand", 50_000_000),),
        ),
        InstanceType(
            "b",
            {"cpu": 2000, "memory": 8 * GI, "pods": 29, "example.com/fuse": 4},
            {"cpu": 70, "memory": GI},
            {
                "example.com/rack": ("r1",),
                "kubernetes.io/arch": ("amd64",),
                "kubernetes.io/os": ("linux", "windows"),
            },
            (Offering("z1", "on-demand", 100_000_000), Offering("z1", "spot", 30_000_000)),
            (Device("T4"), Device("T4")),
        ),
    )
    assert (found.remarks, found.offerings) == ((), 3)


def test_reserved_offerings_name_their_reservation(tmp_path: Path) -> None:
    (kind,) = table(
        tmp_path, f"{HEAD},available,reservation,left\na,1,2Gi,z,reserved,0,false,cr-1,3\n"
    ).types
    assert kind.offerings == (Offering("z", "reserved", 0, False, "cr-1", 3),)


def test_what_has_no_price_is_left_out_and_said(tmp_path: Path) -> None:
    found = table(tmp_path, f"{HEAD}\na,1,2Gi,z,spot,\nb,1,2Gi,z,spot,\nb,1,2Gi,y,spot,1\n")
    assert [kind.name for kind in found.types] == ["b"]
    assert found.remarks == (
        "1 instance type left out: no price (a)",
        "1 offering left out: no price",
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            f"{HEAD}\na,1,2Gi,z,spot,dear\n",
            "t.csv:2: price_per_hour: expected a price in dollars an hour such as 0.096, got",
        ),
        (f"{HEAD}\na,1,2Gi,z,spot,-1\n", "t.csv:2: price_per_hour: expected a price"),
        (f"{HEAD}\na,one,2Gi,z,spot,1\n", "t.csv:2: cpu: expected a quantity"),
        (f"{HEAD}\na,1,-2Gi,z,spot,1\n", "t.csv:2: memory: expected a quantity"),
        (
            f"{HEAD}\na,1,2Gi,z,rented,1\n",
            "t.csv:2: capacity_type: expected one of on-demand, spot, reserved, got 'rented'",
        ),
        (f"{HEAD}\na,1,2Gi,,spot,1\n", "t.csv:2: zone: expected a name"),
        (f"{HEAD}\n,1,2Gi,z,spot,1\n", "t.csv:2: instance_type: expected a name"),
        (
            f"{HEAD}\na,1,2Gi,z,spot,1\na,1,2Gi,z,spot,2\n",
            "t.csv:3: zone: expected each offering of a once, got 'z spot again'",
        ),
        (
            f"{HEAD}\na,1,2Gi,z,spot,1\na,2,2Gi,y,spot,2\n",
            "t.csv:3: cpu: expected '1' as in line 2, for one machine, got '2'",
        ),
        (
            f"{HEAD},available\na,1,2Gi,z,spot,1,maybe\n",
            "t.csv:2: available: expected true or false",
        ),
        (
            f"{HEAD},reservation\na,1,2Gi,z,spot,1,cr\n",
            "t.csv:2: reservation: expected the id of a reservation",
        ),
        (
            f"{HEAD},colour\na,1,2Gi,z,spot,1,red\n",
            "t.csv:1: colour: expected one of instance_type, cpu,",
        ),
        (
            f"{HEAD},capacity:nvidia.com/gpu\na,1,2Gi,z,spot,1,4\n",
            "t.csv:2: capacity:nvidia.com/gpu: expected devices as gpu_kind",
        ),
        (
            "instance_type,cpu,memory,zone,capacity_type\na,1,2Gi,z,spot\n",
            "t.csv:1: expected a table of instance types",
        ),
        (f"{HEAD}\n", "t.csv: expected at least one row below the header"),
        (
            f"{HEAD}\na,1,2Gi,z,spot,\n",
            "t.csv: expected at least one instance type with a price, got none",
        ),
        (f"{HEAD}\na,1\n", "t.csv:2: expected 6 columns, got 2"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, text: str, line: str) -> None:
    with pytest.raises(CommandError) as caught:
        table(tmp_path, text)
    assert caught.value.lines[0].startswith(f"{tmp_path}/{line}"), caught.value.lines


def test_the_example_is_a_catalogue() -> None:
    found = by_name(read([EXAMPLE], "auto", CatalogueTerms()))
    assert sorted(found) == [
        "arm-4",
        "balanced-16",
        "balanced-2",
        "balanced-4",
        "compute-4",
        "compute-8",
    ]
    assert found["balanced-2"].allocatable == {"cpu": 1930, "memory": 8 * GI - 900 * MI, "pods": 58}


# Karpenter's.

KWOK = (
    f"{HEAD},arch,os,ephemeral_storage,pods,available\n"
    "c-1x-amd64-linux,1,2Gi,z,spot,0.019003238553599998,amd64,linux,20Gi,16,True\n"
)


def test_karpenters_types_for_kwok_have_its_labels_and_overhead(tmp_path: Path) -> None:
    path = tmp_path / "offerings.csv.gz"
    path.write_bytes(gzip.compress(KWOK.encode()))
    assert form_of([path]) == "kwok"
    (kind,) = read([path], "auto", CatalogueTerms()).types
    assert kind.overhead == {"cpu": 100, "memory": 10 * MI}
    assert kind.labels == {
        "karpenter.kwok.sh/instance-cpu": ("1",),
        "karpenter.kwok.sh/instance-family": ("c",),
        "karpenter.kwok.sh/instance-memory": ("2Gi",),
        "karpenter.kwok.sh/instance-size": ("1",),
        "kubernetes.io/arch": ("amd64",),
        "kubernetes.io/os": ("linux",),
    }
    assert kind.offerings == (Offering("z", "spot", 19_003_239),)


def as_json(**changed: object) -> str:
    requirements = [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]},
        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z"]},
    ]
    kind = {
        "name": "c-1x-amd64-linux",
        "offerings": [
            {"Price": 0.019003238553599998, "Available": True, "Requirements": requirements}
        ],
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": {"cpu": "1", "ephemeral-storage": "20Gi", "memory": "2Gi", "pods": "16"},
    }
    return json.dumps([kind | changed])


def test_its_json_says_the_same_as_its_table(tmp_path: Path) -> None:
    as_table = table(tmp_path, KWOK)
    as_text = read([written(tmp_path / "t.json", as_json())], "auto", CatalogueTerms())
    assert as_text.types == as_table.types
    older = as_json(
        offerings=[{"CapacityType": "spot", "Zone": "z", "Price": 0.019003238553599998}]
    )
    assert (
        read([written(tmp_path / "o.json", older)], "karpenter", CatalogueTerms()).types
        == as_table.types
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[{]", "t.json:1: not JSON"),
        ("{}", "t.json: expected a list of instance types"),
        ("[1]", "t.json: [0]: expected an object, got '1'"),
        (as_json(name=""), "t.json: [0].name: expected a text that is not empty"),
        (as_json(resources=[]), "t.json: [0].resources: expected resources by name"),
        (as_json(resources={"cpu": "x"}), "t.json: [0].resources.cpu: expected a quantity"),
        (
            as_json(offerings=[{"Zone": "z", "CapacityType": "spot"}]),
            "t.json: [0].offerings[0].price: expected a price",
        ),
        (
            as_json(offerings=[{"Zone": "z", "CapacityType": "x", "Price": 1}]),
            "t.json: [0].offerings[0].capacityType: expected",
        ),
        (
            as_json(offerings=[{"Requirements": [], "Price": 1}]),
            "t.json: [0].offerings[0].requirements: expected one value of top",
        ),
    ],
)
def test_a_mistake_in_the_json_is_named_by_its_place(tmp_path: Path, text: str, line: str) -> None:
    with pytest.raises(CommandError) as caught:
        read([written(tmp_path / "t.json", text)], "auto", CatalogueTerms())
    assert caught.value.lines[0].startswith(f"{tmp_path}/{line}"), caught.value.lines


# Clouds.


def aws(
    tmp_path: Path, extra: CatalogueTerms, types: str = AWS_TYPES, prices: str = AWS_PRICES
) -> Read:
    paths = [written(tmp_path / "prices.csv", prices), written(tmp_path / "types.csv", types)]
    return read(paths, "auto", extra)


def test_aws_types_have_what_pods_can_have_and_a_price_a_zone(tmp_path: Path) -> None:
    found = by_name(aws(tmp_path, CatalogueTerms("north", ("a", "b"))))
    plain = found["m5.large"]
    assert plain.allocatable == {
        "cpu": 1930,
        "memory": 6903 * MI,
        "ephemeral-storage": 17 * GI,
        "pods": 29,
    }
    assert (plain.capacity["cpu"], plain.capacity["memory"]) == (2000, 8 * GI)
    assert plain.offerings == (
        Offering("northa", "on-demand", 96_000_000),
        Offering("northb", "on-demand", 96_000_000),
    )
    assert plain.labels["karpenter.k8s.aws/instance-family"] == ("m5",)
    assert plain.labels["karpenter.k8s.aws/instance-size"] == ("large",)
    assert plain.labels["topology.kubernetes.io/region"] == ("north",)
    assert not any("gpu" in label for label in plain.labels)


def test_accelerators_are_devices_or_counts_by_their_kind(tmp_path: Path) -> None:
    found = by_name(aws(tmp_path, CatalogueTerms("north")))
    assert found["g5.xlarge"].devices == (Device("a10g"),)
    assert found["g4ad.8xlarge"].devices == (Device("radeon-pro-v520", "amd.com/gpu"),) * 2
    assert found["inf1.6xlarge"].capacity["aws.amazon.com/neuron"] == 4


def test_what_is_not_known_of_aws_is_said(tmp_path: Path) -> None:
    assert aws(tmp_path, CatalogueTerms("north")).remarks == (
        "1 instance type left out: no price in north (old.large)",
        "1 instance type left out: a price, and nothing of what they are (secret.large)",
        "every type is taken to be offered in northa, northb, northc: the files do not say",
    )


def test_spot_is_offered_only_for_who_says_its_price(tmp_path: Path) -> None:
    found = by_name(aws(tmp_path, CatalogueTerms("north", ("a",), Decimal("0.35"))))
    assert found["m5.large"].offerings == (
        Offering("northa", "on-demand", 96_000_000),
        Offering("northa", "spot", 33_600_000),
    )


def test_aws_needs_its_region_and_dollars(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="expected --region with one of east, north, got none"):
        aws(tmp_path, CatalogueTerms())
    with pytest.raises(CommandError, match="expected --region with one of east, north, got south"):
        aws(tmp_path, CatalogueTerms("south"))
    with pytest.raises(CommandError, match=r"prices\.csv:7: currency: expected USD, got 'CNY'"):
        aws(tmp_path, CatalogueTerms("east"))
    with pytest.raises(CommandError, match="expected a file of prices"):
        read([written(tmp_path / "only.csv", AWS_TYPES)], "auto", CatalogueTerms("north"))
    shrunk = AWS_TYPES.replace("1930m", "2100m")
    with pytest.raises(
        CommandError,
        match=r"types\.csv:2: alloc_cpu: expected no more than the machine has, got '2100m'",
    ):
        aws(tmp_path, CatalogueTerms("north"), shrunk)


@pytest.mark.parametrize(
    ("sku", "size"),
    [
        ("Standard_D8s_v5", (8, 32 * 1024, "amd64")),
        ("Standard_D2_v3", (2, 8 * 1024, "amd64")),
        ("Standard_D4pls_v6", (4, 8 * 1024, "arm64")),
        ("Standard_E16ads_v5", (16, 128 * 1024, "amd64")),
        ("Standard_F16s_v2", (16, 32 * 1024, "amd64")),
        ("Standard_F8als_v6", (8, 16 * 1024, "amd64")),
        ("Standard_F8ams_v6", (8, 64 * 1024, "amd64")),
        ("Standard_E64s_v3", None),  # less than its multiple
        ("Standard_E32-8s_v5", None),  # fewer vCPUs than its number says
        ("Standard_D2_v2", None),
        ("Standard_D2ns_v6", None),
        ("Standard_NC24", None),
        ("Dsv3_Type1", None),
    ],
)
def test_sizes_of_azure_are_told_by_names_where_they_can_be(sku: str, size: object) -> None:
    assert azure_size(sku) == size


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("n2-standard-8", (8, 32 * 1024, "amd64")),
        ("n1-highmem-4", (4, 26 * 1024, "amd64")),
        ("c4a-highcpu-16", (16, 32 * 1024, "arm64")),
        ("c3-standard-4-lssd", (4, 16 * 1024, "amd64")),
        ("n2-highmem-128", None),
        ("e2-medium", None),
        ("a2-highgpu-1g", None),
        ("c3-standard-192-metal", None),
        ("m1-ultramem-40", None),
    ],
)
def test_sizes_of_google_are_told_by_names_where_they_can_be(name: str, size: object) -> None:
    assert gcp_size(name) == size


def test_google_has_spot_prices_of_its_own_and_azure_none(tmp_path: Path) -> None:
    gcp = (
        "region,machine_type,on_demand_usd_per_hour,spot_usd_per_hour\n"
        "north,n2-standard-2,0.1,0.03\nnorth,odd-one,1,1\n"
    )
    found = table(
        tmp_path, gcp, CatalogueTerms(zones=("a",), overhead={"cpu": 60, "memory": GI}, pods=64)
    )
    (kind,) = found.types
    assert kind.offerings == (
        Offering("north-a", "on-demand", 100_000_000),
        Offering("north-a", "spot", 30_000_000),
    )
    assert kind.allocatable == {"cpu": 1940, "memory": 7 * GI, "pods": 64}
    assert (
        found.remarks[0]
        == "1 instance type left out: what they hold cannot be told from their names (odd-one)"
    )
    with pytest.raises(CommandError, match="--spot-factor"):
        table(tmp_path, gcp, CatalogueTerms(spot_factor=Decimal("0.3")))
    azure = table(tmp_path, "region,vm_sku,usd_per_hour\nwest,Standard_D2s_v5,0.1\n")
    assert [(o.zone, o.capacity_type) for o in azure.types[0].offerings] == [
        (f"west-{i}", "on-demand") for i in (1, 2, 3)
    ]
    assert azure.remarks[-1].startswith("pods are taken to get all of a machine")


@needs_data
@pytest.mark.data
def test_the_data_are_read_whole() -> None:
    kwok = read([DATA / "kwok_instance_types" / "offerings.csv.gz"], "auto", CatalogueTerms())
    assert (len(kwok.types), kwok.offerings, kwok.remarks) == (144, 1152, ())
    files = [DATA / "aws_ec2" / name for name in ("instance_types.csv", "on_demand_prices.csv")]
    found = read(files, "auto", CatalogueTerms("us-east-1"))
    assert (len(found.types), found.offerings) == (1345, 3 * 1345)
    parts = parts_of("aws", found.types)
    assert len(parts) == 2
    assert all(len(canonical(part)) < 900_000 for part in parts)
    gcp = read([DATA / "gcp_vm_prices" / "prices.csv.gz"], "auto", CatalogueTerms("europe-west4"))
    assert (len(gcp.types), gcp.remarks[0].split(":")[0]) == (241, "247 instance types left out")
    azure = read(
        [DATA / "azure_vm_prices" / "on_demand_prices.csv.gz"], "auto", CatalogueTerms("westeurope")
    )
    assert (len(azure.types), azure.remarks[0].split(":")[0]) == (
        428,
        "1,291 instance types left out",
    )


# Parts.


def test_a_catalogue_is_cut_so_that_each_message_can_travel() -> None:
    wide = [InstanceType(f"t-{i:04}", {"cpu": 1}, {}, {"x": ("y" * 5000,)}) for i in range(400)]
    parts = parts_of("wide", wide)
    assert [part.key for part in parts] == [f"InstanceTypes/wide/{i}" for i in range(len(parts))]
    catalogues = [part.catalogue for part in parts]
    assert all(len(canonical(part)) < PART_BYTES + 10_000 for part in parts)
    assert [(c.part, c.parts) for c in catalogues if c] == [
        (i, len(parts)) for i in range(len(parts))
    ]
    assert [kind for c in catalogues if c for kind in c.types] == wide


def test_a_small_catalogue_is_one_part() -> None:
    kind = InstanceType("t", {"cpu": 1000})
    assert parts_of("small", [kind]) == [
        Policy("InstanceTypes", "0", "small", catalogue=Catalogue("small", (kind,)))
    ]


# Options.


def test_options_say_what_files_do_not() -> None:
    found = asked(
        ImportOptions(
            region="north",
            zones="a, b",
            spot_factor="0.35",
            overhead="cpu=100m,memory=1Gi",
            pods=32,
        )
    )
    assert found == CatalogueTerms(
        "north", ("a", "b"), Decimal("0.35"), {"cpu": 100, "memory": GI}, 32
    )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            ImportOptions(zones="a,,b"),
            "--zones: expected names separated by commas such as 'a,b', got 'a,,b'",
        ),
        (
            ImportOptions(spot_factor="2"),
            "--spot-factor: expected a part of the price above 0, at most 1, got '2'",
        ),
        (ImportOptions(spot_factor="x"), "--spot-factor"),
        (
            ImportOptions(overhead="cpu"),
            "--overhead: expected amounts such as cpu=100m,memory=500Mi, got 'cpu'",
        ),
        (ImportOptions(overhead="disk=1Gi"), "--overhead"),
    ],
)
def test_options_that_say_nothing_sensible_are_refused(options: ImportOptions, text: str) -> None:
    with pytest.raises(CommandError) as caught:
        asked(options)
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize(
    ("extra", "option"),
    [
        (CatalogueTerms(zones=("a",)), "--zones"),
        (CatalogueTerms(overhead={"cpu": 1}), "--overhead"),
        (CatalogueTerms(spot_factor=Decimal("0.5")), "--spot-factor"),
        (CatalogueTerms(pods=5), "--pods"),
    ],
)
def test_what_a_file_says_itself_is_not_said_beside_it(
    tmp_path: Path, extra: CatalogueTerms, option: str
) -> None:
    with pytest.raises(CommandError, match=f"{option}: expected only where a file"):
        table(tmp_path, f"{HEAD}\na,1,2Gi,z,spot,1\n", extra)
