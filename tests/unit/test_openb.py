"""The openb importer: what the trace's rows become, and how a bad row is named."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from wharfinger.domain.resources import Device, DeviceRequest
from wharfinger.events.accepted import Accepted
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.cluster_state import NodesObserved
from wharfinger.events.clusters import ClusterObserved
from wharfinger_cli import openb
from wharfinger_cli.failures import CommandError

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn-0,32000,262144,0,\nn-1,96000,524288,2,T4\n"
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
    "late,1000,1024,0,0,,LS,Running,900,1000,901\n"
    "shared,6000,12288,1,460,T4|V100M16,LS,Running,10,1000,10\n"
    "whole,8000,2048,2,1000,,BE,Pending,10,1000,\n"
)
TRUNCATED = gzip.compress((NODES + "".join(f"more-{i},1,1,0,\n" for i in range(99))).encode())[:-20]


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def requested(accepted: Accepted) -> BindingRequested:
    assert isinstance(accepted.data, BindingRequested)
    return accepted.data


def test_nodes_keep_every_device_and_its_model(tmp_path: Path) -> None:
    nodes = openb.read_nodes(written(tmp_path / "nodes.csv", NODES))
    events = list(openb.fleet(nodes, clusters=1))
    assert [e.key for e in events] == ["openb-0", "openb-0/nodes/0"]
    observed = events[1].data
    assert isinstance(observed, NodesObserved)
    by_name = {node.name: node for node in observed.nodes}
    assert by_name["n-0"].devices == ()
    assert by_name["n-1"].devices == (Device("T4"), Device("T4"))
    assert by_name["n-1"].allocatable == {"cpu": 96000, "memory": 524288 << 20}


def test_pods_come_in_order_of_arrival_and_file_order_breaks_ties(tmp_path: Path) -> None:
    pods = openb.read_pods(written(tmp_path / "pods.csv", PODS))
    assert [pod.name for pod in pods] == ["shared", "whole", "late"]


def test_a_shared_gpu_is_asked_for_in_thousandths_of_one_allowed_device(tmp_path: Path) -> None:
    pods = openb.read_pods(written(tmp_path / "pods.csv", PODS))
    shared, whole, late = [
        requested(e).binding for e in openb.bindings(pods, openb.PLACEMENTS["dynamic"])
    ]
    assert shared.name == "openb/shared"
    assert shared.replicas == 1
    assert shared.requirements.devices == (DeviceRequest(1, 460, ("T4", "V100M16")),)
    assert whole.requirements.devices == (DeviceRequest(2, 1000),)
    assert late.requirements.devices == ()
    assert late.requirements.requests == {"cpu": 1000, "memory": 1024 << 20}


@pytest.mark.parametrize(
    ("strategy", "preference"), [("dynamic", "Weighted"), ("aggregated", "Aggregated")]
)
def test_the_caller_chooses_how_replicas_are_divided(
    tmp_path: Path, strategy: str, preference: str
) -> None:
    pods = openb.read_pods(written(tmp_path / "pods.csv", PODS))
    placed = requested(next(openb.bindings(pods, openb.PLACEMENTS[strategy]))).binding.placement
    assert (placed.replicas.type, placed.replicas.preference) == ("Divided", preference)


def test_lists_without_times_keep_file_order(tmp_path: Path) -> None:
    text = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\nb,1,1,0,0\na,1,1,0,0\n"
    assert [pod.name for pod in openb.read_pods(written(tmp_path / "pods.csv", text))] == ["b", "a"]


def test_a_gzipped_list_reads_as_the_plain_one(tmp_path: Path) -> None:
    packed = tmp_path / "pods.csv.gz"
    packed.write_bytes(gzip.compress(PODS.encode()))
    assert openb.read_pods(packed) == openb.read_pods(written(tmp_path / "pods.csv", PODS))


def test_clusters_partition_the_nodes_and_are_the_same_for_the_same_count(tmp_path: Path) -> None:
    rows = "".join(f"node-{i},1000,1024,0,\n" for i in range(1000))
    nodes = openb.read_nodes(written(tmp_path / "nodes.csv", NODES.split("\n", 1)[0] + "\n" + rows))
    once, again = list(openb.fleet(nodes, 8)), list(openb.fleet(list(reversed(nodes)), 8))
    assert once == again
    told = [e.data for e in once if isinstance(e.data, NodesObserved)]
    assert sorted(n.name for o in told for n in o.nodes) == sorted(n.name for n in nodes)
    assert [e.data.cluster.name for e in once if isinstance(e.data, ClusterObserved)] == [
        f"openb-{i}" for i in range(8)
    ]
    assert all(o.buckets == max(p.bucket for p in told if p.cluster == o.cluster) + 1 for o in told)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            "p,x,1,0,0,",
            "pods.csv:2: cpu_milli: expected a whole number of at most 12 digits, got 'x'",
        ),
        (
            "p,-1,1,0,0,",
            "pods.csv:2: cpu_milli: expected a whole number of at most 12 digits, got '-1'",
        ),
        (
            "p,1,,0,0,",
            "pods.csv:2: memory_mib: expected a whole number of at most 12 digits, got ''",
        ),
        (",1,1,0,0,", "pods.csv:2: name: expected a name, got ''"),
        ("p,1,1,1,0,", "pods.csv:2: gpu_milli: expected 1 to 1000 thousandths of a GPU, got '0'"),
        ("p,1,1,2,500,", "pods.csv:2: gpu_milli: expected 1000, because num_gpu is 2, got '500'"),
        ("p,1,1,5000,1000,", "pods.csv:2: num_gpu: expected at most 1024 devices, got '5000'"),
        ("p,1,1,0,0", "pods.csv:2: expected 6 columns, got 5"),
        (
            "p,1,1,0,0,\np,1,1,0,0,",
            "pods.csv:3: name: expected a name not used before (line 2), got 'p'",
        ),
        ('"p', "pods.csv:2: not CSV: unexpected end of data"),
    ],
)
def test_a_bad_row_is_named_by_file_line_and_column(tmp_path: Path, row: str, said: str) -> None:
    path = written(
        tmp_path / "pods.csv", f"name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n{row}\n"
    )
    with pytest.raises(CommandError) as caught:
        openb.read_pods(path)
    assert str(caught.value).removeprefix(f"{tmp_path}/") == said
    assert caught.value.code == 2


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("n.csv", b"", "n.csv:1: sn: expected this column in the header, got []"),
        (
            "n.csv",
            b"sn,gpu\n",
            "n.csv:1: cpu_milli: expected this column in the header, got ['sn', 'gpu']",
        ),
        (
            "n.csv",
            NODES.split("\n")[0].encode(),
            "n.csv: expected at least one row below the header",
        ),
        ("n.csv", NODES.encode() + b"\xff\xfe", "n.csv: not UTF-8 text: invalid start byte"),
        ("n.csv.gz", b"plain", "n.csv.gz: Not a gzipped file (b'pl')"),
        ("n.csv.gz", TRUNCATED, "n.csv.gz: Compressed file ended before the end-of-stream"),
    ],
    ids=["empty", "columns", "no-rows", "not-utf8", "not-gzip", "cut-short"],
)
def test_a_file_that_is_no_node_list_is_refused_in_one_line(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CommandError) as caught:
        openb.read_nodes(tmp_path / name)
    assert str(caught.value).removeprefix(f"{tmp_path}/").startswith(said)
    assert len(caught.value.lines) == 1


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="No such file or directory"):
        openb.read_nodes(tmp_path / "absent.csv")


@pytest.mark.data
def test_the_whole_trace_reads() -> None:
    data = Path(os.environ.get("WHARFINGER_DATA", "../shared/data")) / "openb"
    if not data.is_dir():
        pytest.skip(f"openb trace not at {data} (set WHARFINGER_DATA)")
    nodes = openb.read_nodes(data / "openb_node_list_all_node.csv")
    pods = openb.read_pods(data / "openb_pod_list_default.csv")
    assert (len(nodes), sum(n.gpus for n in nodes)) == (1523, 6212)
    assert len(list(openb.bindings(pods, openb.PLACEMENTS["dynamic"]))) == 8152
    for more in sorted(data.glob("openb_pod_list_*.csv.gz")):
        assert len(openb.read_pods(more)) > 7000
