"""Benchmark of the simulator on this machine: throughput, memory and start-up time, with targets.

Every measurement uses the public API on one core and is the best of several repetitions. The machine should be idle
otherwise.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from os import PathLike
from pathlib import Path

import kilowait as kw
from benchmarks.speed import gpu_engine, other_simulators
from benchmarks.speed.measurement import BenchResult, best_s, interleaved_ratio, python_output
from kilowait.errors import InputError
from kilowait.jobs import JobTable

__all__ = ["run_benchmarks"]

POLICIES: dict[str, tuple[str, str, float]] = {
    "FCFS": ("fcfs", "none", 5e6),
    "FCFS + EASY": ("fcfs", "easy", 2e6),
    "SJF + EASY": ("sjf", "easy", 1e6),
    "WFP3 + EASY": ("wfp3", "easy", 1e5),
    "FCFS + conservative": ("fcfs", "conservative", 5e4),
}
"""Label to policy, backfilling, and the target in jobs per second on lublin_256."""

LUBLIN_256 = "lublin_256.swf.gz"
REAL_LOGS = {
    "SDSC-SP2": "SDSC-SP2-1998-4.2-cln.swf.gz",
    "KTH-SP2": "KTH-SP2-1996-2.1-cln.swf.gz",
    "HPC2N": "HPC2N-2002-2.2-cln.swf.gz",
}
POWER_CONTROLS = {
    "sleep + DVFS + accounting": "sleep=break-even+dvfs=1.1",
    "the same, budget 95 %": "sleep=break-even+dvfs=1.1+budget=95%",
}
"""Label to power controls; the target with energy accounting is 1.5 times the time of a plain run with metrics."""
CURIE = "CEA-Curie-2011-2.1-cln.swf.gz"
SEED = 1
NODES, SIZE_FACTOR = 256, 192
"""Nodes of the small cluster, and the factor to the large one: 49,152 = 192 x 256."""

_LARGE_RUN = """
import json, sys, time
import kilowait as kw
count = int(sys.argv[1])
jobs, cluster = kw.lublin(count, 49_152, load=0.9, seed=0), kw.Cluster.from_nodes(49_152)
kw.simulate(jobs[:100], cluster, "fcfs", "easy")
began = time.perf_counter()
kw.simulate(jobs, cluster, "fcfs", "easy")
seconds = time.perf_counter() - began
peak = None
try:  # not getrusage, which includes the memory of the parent process
    with open("/proc/self/status") as file:
        peak = next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))
except OSError:
    pass
print(json.dumps([seconds, peak]))
"""


def run_benchmarks(*, quick: bool = False, data: str | PathLike[str] | None = None) -> Iterator[BenchResult]:
    """Yield every measurement as soon as it is finished.

    `data` is the folder of real logs (with ``swf/`` in it); the default is the environment variable KILOWAIT_DATA.
    `quick` omits slow measurements: a million jobs, CEA-Curie and the start without compiled kernels.
    """
    folder = _data_folder(data)
    synthetic = kw.lublin(10_000, NODES, load=1.06, seed=SEED)
    swf_file = folder / "swf" / LUBLIN_256 if folder is not None else None
    if swf_file is not None and swf_file.exists():
        yield from _policies("lublin_256", kw.read_trace(swf_file), targets=True, quick=quick)
        yield from _policies("Lublin model", synthetic, targets=False, quick=quick)
    else:
        yield from _policies("Lublin model", synthetic, targets=True, quick=quick)
    if folder is not None:
        yield from _real_logs(folder, quick)
    yield from _power_controls("Lublin model", None, quick)
    if folder is not None:
        yield from _power_controls("SDSC-SP2", folder / "swf" / REAL_LOGS["SDSC-SP2"], quick)
    yield from _other_simulators(synthetic)
    yield _cluster_size(synthetic, quick)
    yield from _large_run(100_000 if quick else 1_000_000)
    yield from _gpu_cluster(100_000 if quick else 1_000_000, folder)
    if folder is not None and not quick:
        yield from _curie(folder)
    yield from _start_up(quick)


def _data_folder(data: str | PathLike[str] | None) -> Path | None:
    path = data if data is not None else os.environ.get("KILOWAIT_DATA")
    if not path:
        return None
    folder = Path(path)
    if not (folder / "swf").is_dir():
        raise InputError(f"the folder of real logs is {folder}, but it has no folder swf/; name the right folder")
    return folder


def _policies(name: str, jobs: JobTable, *, targets: bool, quick: bool) -> Iterator[BenchResult]:
    cluster = kw.Cluster.from_nodes(NODES)
    for label, (policy, backfill, target) in POLICIES.items():
        seconds = best_s(partial(kw.simulate, jobs, cluster, policy, backfill), quick=quick)
        yield BenchResult(f"{name}, {label}", len(jobs) / seconds, "jobs/s", target if targets else None)


def _real_logs(folder: Path, quick: bool) -> Iterator[BenchResult]:
    for name, file in REAL_LOGS.items():
        path = folder / "swf" / file
        if not path.exists():
            yield BenchResult(f"{name}, FCFS + EASY", None, note=f"{path} does not exist")
            continue
        jobs = kw.read_trace(path)
        cluster = kw.Cluster.from_nodes(int(jobs.meta["max_procs"]))
        seconds = best_s(partial(kw.simulate, jobs, cluster, "fcfs", "easy", on_oversized="drop"), quick=quick)
        yield BenchResult(f"{name}, FCFS + EASY", len(jobs) / seconds, "jobs/s", 4e6)


def _power_controls(name: str, log: Path | None, quick: bool) -> Iterator[BenchResult]:
    """Run time with power controls relative to a plain run, on a log or on the workload of the Lublin model."""
    if log is not None and not log.exists():
        yield BenchResult(f"{name}, power controls", None, note=f"{log} does not exist")
        return
    arguments = ("-m", "benchmarks.speed.power_controls", str(log or ""), "quick" if quick else "full")
    ratios = json.loads(python_output(*arguments, OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1"))
    for label, ratio in zip(POWER_CONTROLS, ratios, strict=True):
        note = "relative to a plain run with metrics"
        yield BenchResult(f"{name}, {label}", ratio, "times", 1.5, less_is_better=True, note=note)


def _other_simulators(jobs: JobTable) -> Iterator[BenchResult]:
    """Throughput of other simulators, and of kilowait, on the first jobs of the workload."""
    first_jobs = jobs[: other_simulators.REFERENCE_JOBS]
    cluster = kw.Cluster.from_nodes(NODES)
    for label, (policy, backfill, _) in POLICIES.items():
        seconds = other_simulators.reference_simulator_s(first_jobs, NODES, policy, backfill)
        if seconds is None:
            yield BenchResult("reference simulator", None, note="runs only from a checkout: tests/oracle is missing")
            break
        own_s = best_s(partial(kw.simulate, first_jobs, cluster, policy, backfill), quick=True)
        note = (
            f"first {len(first_jobs):,} jobs; kilowait: {len(first_jobs) / own_s:,.0f} jobs/s, "
            f"{seconds / own_s:,.0f} times"
        )
        yield BenchResult(f"reference simulator, {label}", len(first_jobs) / seconds, "jobs/s", note=note)
    first_jobs = jobs[: other_simulators.ACCASIM_JOBS]
    for label in ("FCFS", "FCFS + EASY"):
        policy, backfill, _ = POLICIES[label]
        peer_s = other_simulators.accasim_s(first_jobs, NODES, backfill)
        if isinstance(peer_s, str):
            yield BenchResult("AccaSim", None, note=peer_s)
            break
        own_s = best_s(partial(kw.simulate, first_jobs, cluster, policy, backfill), quick=True)
        note = f"first {len(first_jobs):,} jobs, including reading; kilowait is {peer_s / own_s:,.0f} times as fast"
        yield BenchResult(f"AccaSim, {label}", len(first_jobs) / peer_s, "jobs/s", note=note)


def _cluster_size(jobs: JobTable, quick: bool) -> BenchResult:
    """Cost per job if jobs and cluster are 192 times larger: the queue is the same, so the cost should be too."""
    larger = jobs.with_unit("node", nodes=jobs.size * SIZE_FACTOR)
    small, large = kw.Cluster.from_nodes(NODES), kw.Cluster.from_nodes(NODES * SIZE_FACTOR)
    ratio = interleaved_ratio(
        partial(kw.simulate, jobs, small, "fcfs", "easy"),
        partial(kw.simulate, larger, large, "fcfs", "easy"),
        quick=quick,
    )
    return BenchResult("cost per job, 49,152 nodes over 256", ratio, "times", 1.2, less_is_better=True)


def _large_run(count: int) -> Iterator[BenchResult]:
    name = f"{count:,} jobs, 49,152 nodes, load 0.9, EASY"
    seconds, peak = json.loads(python_output("-c", _LARGE_RUN, str(count)))
    has_target = count == 1_000_000
    yield BenchResult(name, seconds, "s", 10.0 if has_target else None, less_is_better=True)
    if peak is None:
        yield BenchResult("their peak memory", None, note="this system has no /proc, which reports it")
    else:
        yield BenchResult("their peak memory", peak / 1e9, "GB", 1.0 if has_target else None, less_is_better=True)


def _gpu_cluster(count: int, folder: Path | None) -> Iterator[BenchResult]:
    name = f"{count:,} jobs of one GPU, 6,212 GPUs, first fit"
    has_target = count == 1_000_000
    yield BenchResult(name, gpu_engine.first_fit_s(count), "s", 30.0 if has_target else None, less_is_better=True)
    pods = gpu_engine.pods_of(folder)
    source = "openb" if "workload" not in pods.meta else "synthetic"
    seconds = best_s(gpu_engine.fgd_run(pods), quick=True)
    note = f"{len(pods):,} pods"
    yield BenchResult(f"{source} pods, 6,212 GPUs, FGD", seconds, "s", 2.0, less_is_better=True, note=note)


def _curie(folder: Path) -> Iterator[BenchResult]:
    path = folder / "swf" / CURIE
    if not path.exists():
        yield BenchResult("CEA-Curie", None, note=f"{path} does not exist")
        return
    seconds = best_s(partial(kw.read_trace, path), quick=True, warm=False)
    jobs = kw.read_trace(path)
    yield BenchResult("CEA-Curie, read", seconds, "s", 3.0, less_is_better=True, note=f"{len(jobs):,} jobs")
    cluster = kw.Cluster.from_nodes(int(jobs.meta["max_procs"]))
    seconds = best_s(partial(kw.simulate, jobs, cluster, "fcfs", "easy", on_oversized="drop"), quick=True)
    yield BenchResult("CEA-Curie, FCFS + EASY", seconds, "s", 3.0, less_is_better=True)


def _start_up(quick: bool) -> Iterator[BenchResult]:
    code = "import time; t = time.perf_counter(); import kilowait; print(time.perf_counter() - t)"
    seconds = min(float(python_output("-c", code)) for _ in range(3))
    yield BenchResult("import kilowait", seconds, "s", 0.4, less_is_better=True)
    arguments = ("-m", "kilowait.cli", "simulate", "lublin:1000:128")
    seconds = best_s(partial(python_output, *arguments), quick=True)
    yield BenchResult("from shell to table, kernels cached", seconds, "s", 1.5, less_is_better=True)
    if quick:
        return
    with tempfile.TemporaryDirectory() as empty:
        began = time.perf_counter()
        python_output(*arguments, KILOWAIT_CACHE_DIR=empty)
        seconds = time.perf_counter() - began
    yield BenchResult("from shell to table, kernels not compiled", seconds, "s", 20.0, less_is_better=True)
