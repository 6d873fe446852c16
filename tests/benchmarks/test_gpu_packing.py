"""The capacity score of the benchmark equals the engine's placement capacity."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from benchmarks.reproduce.gpu_packing import RULES, Kinds, Nodes, used_after_each

import kilowait as kw
from kilowait.cluster import Cluster, NodeGroup
from kilowait.engine.gpu.settings import GpuSettings
from kilowait.rng import stream

MACHINE = (("P100", 4, 2, 32), ("T4", 5, 4, 40), ("V100M16", 4, 8, 96), ("T4", 3, 1, 16))
"""GPU type, nodes, GPUs and cores of each."""
TYPES = ("P100", "T4", "V100M16")
LABELS = ("P100|T4", "V100M16")


def random_pods(seed: int) -> list[tuple[int, int, int, str]]:
    """Random pods that request more GPUs than exist: thousandths of cores and of a GPU, GPUs, label of types."""
    rng = stream(seed, "pods")
    kinds = []
    for _ in range(25):
        gpus = int(rng.choice([0, 1, 1, 1, 1, 2, 4]))
        gpu_milli = int(rng.choice([100, 250, 460, 500, 810, 1000])) if gpus == 1 else 1000 * min(gpus, 1)
        label = str(rng.choice(["", "", *LABELS])) if 0 < gpus < 3 else ""
        kinds.append((int(rng.choice([0, 500, 2000, 6000, 12_000])), gpu_milli, gpus, label))
    return [kinds[i] for i in rng.integers(0, len(kinds), 300)]


def used_in_benchmark(pods: list[tuple[int, int, int, str]]) -> list[int]:
    counts = sorted(Counter(pods).items(), key=lambda item: (item[1], item[0]), reverse=True)
    number_of_kind = {kind: number for number, (kind, _) in enumerate(counts)}
    needs = [
        (cpu, gpus, gpu_milli, sum(1 << i for i, name in enumerate(TYPES) if name in (label or "|".join(TYPES))))
        for (cpu, gpu_milli, gpus, label), _ in counts
    ]
    shares = np.array([count / len(pods) for _, count in counts])
    rows = [(cores * 1000, 1, gpus, TYPES.index(name)) for name, nodes, gpus, cores in MACHINE for _ in range(nodes)]
    kind = np.array([number_of_kind[pod] for pod in pods])
    nodes = Nodes(*np.array(rows).T.copy())
    kinds = Kinds(np.array(needs), shares, shares)
    return used_after_each(RULES.index("capacity"), kind, np.zeros_like(kind), kinds, nodes).tolist()


def used_in_engine(pods: list[tuple[int, int, int, str]]) -> list[int]:
    count = len(pods)
    cpu, gpu_milli, gpus, label = zip(*pods, strict=True)
    cluster = Cluster(
        tuple(
            NodeGroup(f"g{i}", nodes, cores=cores, gpus=each, gpu_type=name, node_level=True)
            for i, (name, nodes, each, cores) in enumerate(MACHINE)
        )
    )
    jobs = kw.JobTable(
        job_id=range(count),
        submit_s=np.arange(count),
        runtime_s=np.full(count, 1e6),
        nodes=np.ones(count, int),
        gpus=gpus,
        gpu_milli=[part or 1000 for part in gpu_milli],
        cpu_milli=cpu,
        gpu_types=[("", *LABELS).index(name) - 1 for name in label],
        labels={"gpu_types": LABELS},
    )
    log = kw.simulate(
        jobs,
        cluster,
        backfill="skip",
        settings=GpuSettings(placement="capacity", head_of_line_blocking=False),
        gpu_speeds="none",
    )
    requested = np.array(gpus) * gpu_milli
    started = np.zeros(count, np.int64)
    first = log.start_s < count  # later starts waited for the first job to end
    assert (log.start_s[first] == log.job[first]).all(), "jobs that do not fit at once never start"
    started[log.job[first]] = requested[log.job[first]]
    return np.cumsum(started).tolist()


@pytest.mark.parametrize("seed", range(5))
def test_engine_and_benchmark_place_equally(seed):
    pods = random_pods(seed)
    used = used_in_engine(pods)
    assert used == used_in_benchmark(pods)
    assert used[-1] < sum(gpus * gpu_milli for _, gpu_milli, gpus, _ in pods), "some pods must be dropped"
