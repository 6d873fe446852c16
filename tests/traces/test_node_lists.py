from __future__ import annotations

from pathlib import Path

import pytest

from kilowait.errors import ClusterError, TraceError
from kilowait.traces import read_nodes

OPENB = """\
sn,cpu_milli,memory_mib,gpu,model
openb-node-0000,32000,262144,0,
openb-node-0001,64000,262144,2,P100
openb-node-0002,32000,262144,0,
openb-node-0003,16000,131072,2,P100
openb-node-0004,128000,786432,8,G3
"""


def nodes(path: Path, text: str) -> Path:
    (path / "nodes.csv").write_text(text)
    return path / "nodes.csv"


def test_openb_nodes_keep_their_order(tmp_path: Path) -> None:
    cluster = read_nodes(nodes(tmp_path, OPENB))
    assert cluster.node_groups == (0, 1, 0, 2, 3)
    assert [group.name for group in cluster.groups] == ["cpu", "P100 2x 64c 275g", "P100 2x 16c 137g", "G3"]
    assert [group.nodes for group in cluster.groups] == [2, 1, 1, 1]
    assert [group.gpu_type for group in cluster.groups] == ["", "P100", "P100", "G3"]
    assert [group.gpus for group in cluster.groups] == [0, 2, 2, 8]
    assert [group.cores for group in cluster.groups] == [32, 64, 16, 128]
    assert cluster.groups[0].memory_gb == pytest.approx(274.877906944)
    assert cluster.node_level
    assert cluster.name == "nodes"


def test_nodes_of_the_2026_and_2020_formats(tmp_path: Path) -> None:
    text = "gpu_model,gpu_capacity_num,cpu_num,node_name\nA10,1,128,0\nH800,8,192,1\nA10,1,128,2\n"
    cluster = read_nodes(nodes(tmp_path, text))
    assert cluster.node_groups == (0, 1, 0)
    assert [group.memory_gb for group in cluster.groups] == [0, 0]
    cluster = read_nodes(nodes(tmp_path, "82e5af3cd5c4af3f56c62c54,T4,96,512,2\n"))
    assert (cluster.groups[0].cores, cluster.groups[0].gpus) == (96, 2)
    assert cluster.groups[0].memory_gb == pytest.approx(512 * 1.073741824)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (OPENB.replace("64000", "64500"), ClusterError, "line 3 has 64.5 cores"),
        (OPENB.replace("64000", "?"), ClusterError, "line 3 has nan cores"),
        (OPENB.replace("64000,262144", "64000"), TraceError, "it is incomplete: dropped 1"),
        ("job_id,submit_s\n1,2\n", TraceError, "not a supported node list"),
        (OPENB.splitlines()[0] + "\n", TraceError, "no valid rows"),
    ],
)
def test_invalid_node_lists(tmp_path: Path, text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        read_nodes(nodes(tmp_path, text))


@pytest.mark.parametrize(
    ("name", "count", "gpus"),
    [
        ("alibaba_v2023/openb_node_list_all_node.csv.gz", 1_523, 6_212),
        ("alibaba_v2023/openb_node_list_gpu_node.csv.gz", 1_213, 6_212),
        ("alibaba_v2026_spot/node_info_df.csv.gz", 4_278, None),
    ],
)
def test_real_lists(data_dir: Path, name: str, count: int, gpus: int | None) -> None:
    cluster = read_nodes(data_dir / "gpu" / name)
    assert cluster.nodes == count == len(cluster.node_groups or ())
    assert gpus is None or sum(group.nodes * group.gpus for group in cluster.groups) == gpus
    assert all(group.gpu_type for group in cluster.groups if group.gpus)
