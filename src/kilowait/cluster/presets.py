"""Predefined clusters.

Sources: Polaris, ALCF user guides (docs/polaris/index.md); Mira and Theta, ALCF machine pages (Theta's memory
and Mira's per-node figures as listed there, unconfirmed); Cooley, ALCF's GettingStarted repository.

Node-level clusters (GPU engine):

- *gpu-mixed*: 16 A100, 16 V100, 12 T4 and 12 RTX 4090, the 56 GPUs of HenryAJX/DRL_Scheduler. The source does not
  give their nodes; here each node has 4 GPUs, with typical cores and memory.
- *gavel*: 36 V100, 36 P100 and 36 K80 as in Gavel's published sweeps (EXPERIMENTS.md), one per server: the
  sweeps leave --num_gpus_per_server at 1:1:1. Gavel does not model cores and memory; these are of the instances its
  price table names (p3.2xlarge, NC6s v2, p2.xlarge).
- *philly*: 469 nodes of 8 and 83 of 2 GPUs (ExaDigiT/RAPS config/philly, which corrects the trace's own machine list
  by the GPUs seen in the job log). The trace names no types, only 24 and 12 GB; P40 and P100, and 40 cores, are what
  RAPS assumes. Memory: of a node the trace's README shows; of the small nodes assumed.
- *helios-venus*: 133 nodes of 8 GPUs; its virtual clusters and their sizes on 2020-09-01 (HeliosData
  data/Venus/cluster_gpu_number.csv). A virtual cluster is a node group and the only queue that uses it. V100, 48
  threads and 376 GB a node as in the SC'21 paper's table, unconfirmed.
- *thetagpu*: 24 DGX A100, two of them with 80 GB GPUs and twice the memory (ALCF user guides,
  docs/theta-gpu/hardware-overview).
- *openb*: the 1,213 nodes with GPUs of Alibaba's cluster-trace-gpu-v2023, counted by kind from its node list. The order
  of nodes is not the file's, which mixes the kinds; read the file's own list where placement
  ties go to the lowest node number.
"""

from __future__ import annotations

from kilowait.cluster.cluster import Cluster, NodeGroup


def _gpu_cluster(name: str, *groups: NodeGroup, queues: bool = False) -> Cluster:
    """A node-level cluster; with `queues`, each group is used only by the queue of its name."""
    return Cluster(groups, {group.name: (group.name,) for group in groups} if queues else {}, name=name)


def _nodes(name: str, nodes: int, cores: int, memory_gb: float, gpus: int, gpu_type: str) -> NodeGroup:
    return NodeGroup(name, nodes, cores, memory_gb, gpus, gpu_type, node_level=True)


def _mib(memory_mib: int) -> float:
    """Convert MiB to GB (10^9 bytes)."""
    return round(memory_mib * 2**20 / 1e9, 3)


_VENUS = (
    *(("vcEwI", 9), ("vcWoR", 8), ("vcHvQ", 8), ("vcvGl", 20), ("vc8Gr", 6), ("vcKeu", 12), ("vcKrE", 4)),
    *(("vcYVn", 11), ("vchbv", 4), ("vcLTP", 8), ("vcJLV", 2), ("vchA3", 3), ("vcJsw", 25), ("vcefl", 10)),
    *(("vcvlY", 2), ("vcgkz", 1)),
)

_OPENB = (
    ("G2x8", 549, 96, 393_216, 8, "G2"),
    ("T4x2", 387, 104, 524_288, 2, "T4"),
    ("P100x2-16c", 107, 16, 122_880, 2, "P100"),
    ("G3x8", 39, 128, 786_432, 8, "G3"),
    ("V100M16x4", 28, 32, 131_072, 4, "V100M16"),
    ("P100x2-64c", 22, 64, 262_144, 2, "P100"),
    ("V100M32x8", 21, 96, 786_432, 8, "V100M32"),
    ("V100M16x1", 19, 8, 32_768, 1, "V100M16"),
    ("T4x4", 17, 96, 393_216, 4, "T4"),
    ("V100M32x4", 9, 48, 376_832, 4, "V100M32"),
    ("V100M16x8-64c", 7, 64, 262_144, 8, "V100M16"),
    ("P100x1", 3, 8, 61_440, 1, "P100"),
    ("P100x2-8c", 2, 8, 61_440, 2, "P100"),
    ("A10x1", 2, 128, 1_048_576, 1, "A10"),
    ("V100M16x8-82c", 1, 82, 344_064, 8, "V100M16"),
)
"""Name, nodes, cores, MiB, GPUs, type."""

PRESETS: dict[str, Cluster] = {
    "polaris": Cluster(
        groups=(NodeGroup("polaris", 560, cores=32, memory_gb=549.8, gpus=4, gpu_type="A100-SXM4-40"),), name="polaris"
    ),
    "mira": Cluster(groups=(NodeGroup("mira", 49_152, cores=16, memory_gb=17.2),), name="mira"),
    "cooley": Cluster(
        groups=(NodeGroup("cooley", 126, cores=12, memory_gb=384.0, gpus=2, gpu_type="K80"),), name="cooley"
    ),
    "theta": Cluster(groups=(NodeGroup("theta", 4_392, cores=64, memory_gb=208.0),), name="theta"),
    "gpu-mixed": _gpu_cluster(
        "gpu-mixed",
        _nodes("a100", 4, 64, 512.0, 4, "A100"),
        _nodes("v100", 4, 40, 384.0, 4, "V100"),
        _nodes("t4", 3, 48, 192.0, 4, "T4"),
        _nodes("rtx4090", 3, 64, 256.0, 4, "RTX4090"),
    ),
    "gavel": _gpu_cluster(
        "gavel",
        _nodes("v100", 36, 8, 65.5, 1, "V100"),
        _nodes("p100", 36, 6, 120.3, 1, "P100"),
        _nodes("k80", 36, 4, 65.5, 1, "K80"),
    ),
    "philly": _gpu_cluster(
        "philly", _nodes("8-gpu", 469, 40, 540.9, 8, "P40"), _nodes("2-gpu", 83, 40, 128.0, 2, "P100-12")
    ),
    "helios-venus": _gpu_cluster(
        "helios-venus", *(_nodes(vc, nodes, 48, 376.0, 8, "V100") for vc, nodes in _VENUS), queues=True
    ),
    "thetagpu": _gpu_cluster(
        "thetagpu",
        _nodes("a100-40", 22, 128, 1000.0, 8, "A100-SXM4-40"),
        _nodes("a100-80", 2, 128, 2000.0, 8, "A100-SXM4-80"),
    ),
    "openb": _gpu_cluster(
        "openb", *(_nodes(name, n, cores, _mib(mib), gpus, kind) for name, n, cores, mib, gpus, kind in _OPENB)
    ),
}
"""Clusters by name. 512 GiB is 549.8 GB, 16 GiB is 17.2 GB; a K80 card is two GPUs."""
