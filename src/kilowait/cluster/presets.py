"""Machines known by name.

Sources: Polaris, ALCF user guides (docs/polaris/index.md); Mira and Theta, ALCF machine pages (Theta's memory
and Mira's per-node figures as listed there, unconfirmed); Cooley, ALCF's GettingStarted repository.
"""

from __future__ import annotations

from kilowait.cluster.machine import Cluster, NodeGroup

__all__ = ["PRESETS"]

PRESETS: dict[str, Cluster] = {
    "polaris": Cluster(
        groups=(NodeGroup("polaris", 560, cores=32, memory_gb=549.8, gpus=4, gpu_type="A100-SXM4-40"),),
        name="polaris",
    ),
    "mira": Cluster(groups=(NodeGroup("mira", 49_152, cores=16, memory_gb=17.2),), name="mira"),
    "cooley": Cluster(
        groups=(NodeGroup("cooley", 126, cores=12, memory_gb=384.0, gpus=2, gpu_type="K80"),), name="cooley"
    ),
    "theta": Cluster(groups=(NodeGroup("theta", 4_392, cores=64, memory_gb=208.0),), name="theta"),
}
"""Name to machine. 512 GiB is 549.8 GB, 16 GiB is 17.2 GB; a K80 card is two GPUs."""
