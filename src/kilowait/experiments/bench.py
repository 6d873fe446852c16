"""How fast the clock is on this machine, one measure after another, each beside its target.

Through the public API, on one core, the best of several repetitions. The rest of the machine should be idle.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import kilowait as kw
from kilowait.errors import InputError
from kilowait.experiments import bench_gpu_engine, bench_peers
from kilowait.jobs import JobTable

__all__ = ["BenchResult", "measures"]

RULES: dict[str, tuple[str, str, float]] = {
    "FCFS": ("fcfs", "none", 5e6),
    "FCFS + EASY": ("fcfs", "easy", 2e6),
    "SJF + EASY": ("sjf", "easy", 1e6),
    "WFP3 + EASY": ("wfp3", "easy", 1e5),
    "FCFS + conservative": ("fcfs", "conservative", 5e4),
}
"""Rule to policy, backfilling, and the jobs per second they are to reach on lublin_256."""

LUBLIN_256 = "lublin_256.swf.gz"
REAL_LOGS = {
    "SDSC-SP2": "SDSC-SP2-1998-4.2-cln.swf.gz",
    "KTH-SP2": "KTH-SP2-1996-2.1-cln.swf.gz",
    "HPC2N": "HPC2N-2002-2.2-cln.swf.gz",
}
LEVERS = {
    "sleep + levels + accounts": "sleep=break-even+dvfs=1.1",
    "the same, budget 95 %": "sleep=break-even+dvfs=1.1+budget=95%",
}
"""Levers whose whole path, accounts included, is to take at most 1.5 times the plain run and its metrics."""
CURIE = "CEA-Curie-2011-2.1-cln.swf.gz"
SEED = 1
NODES, TIMES_LARGER = 256, 192
"""49,152 nodes are 192 times 256."""

_MILLION = """
import json, sys, time
import kilowait as kw
count = int(sys.argv[1])
jobs, cluster = kw.lublin(count, 49_152, load=0.9, seed=0), kw.Cluster.from_nodes(49_152)
kw.simulate(jobs[:100], cluster, "fcfs", "easy")
began = time.perf_counter()
kw.simulate(jobs, cluster, "fcfs", "easy")
seconds = time.perf_counter() - began
peak = None
try:  # not getrusage: that begins with the size of whoever started us
    with open("/proc/self/status") as file:
        peak = next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))
except OSError:
    pass
print(json.dumps([seconds, peak]))
"""


@dataclass(frozen=True)
class BenchResult:
    """One number beside its target."""

    name: str
    value: float | None
    """None: it could not be measured here; the note says why."""
    unit: str = ""
    target: float | None = None
    less_is_better: bool = False
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without one."""
        if self.value is None or self.target is None:
            return None
        return self.value <= self.target if self.less_is_better else self.value >= self.target

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "met": self.met}


def measures(*, quick: bool = False, data: str | PathLike[str] | None = None) -> Iterator[BenchResult]:
    """Every measure, as soon as it is made.

    `data` is the folder of real logs (with ``swf/`` in it); the default is what KILOWAIT_DATA names. `quick` leaves
    out what takes long: millions of jobs, CEA-Curie and the cold start.
    """
    folder = _data(data)
    made = kw.lublin(10_000, NODES, load=1.06, seed=SEED)
    real = folder / "swf" / LUBLIN_256 if folder is not None else None
    if real is not None and real.exists():
        yield from _rules("lublin_256", kw.read_trace(real), targets=True, quick=quick)
        yield from _rules("Lublin model", made, targets=False, quick=quick)
    else:
        yield from _rules("Lublin model", made, targets=True, quick=quick)
    if folder is not None:
        yield from _real_logs(folder, quick)
    yield from _levers("Lublin model", None, quick)
    if folder is not None:
        yield from _levers("SDSC-SP2", folder / "swf" / REAL_LOGS["SDSC-SP2"], quick)
    yield from _beside(made)
    yield _machine_size(made, quick)
    yield from _million(100_000 if quick else 1_000_000)
    yield from _placed(100_000 if quick else 1_000_000, folder)
    if folder is not None and not quick:
        yield from _curie(folder)
    yield from _start_up(quick)


def best_s(call: Callable[[], Any], *, quick: bool = False, warm: bool = True) -> float:
    """Seconds of the fastest of at least five calls over at least 3 s (three, and a quarter of one, when quick)."""
    if warm:
        call()
    least, least_s = (3, 0.25) if quick else (5, 3.0)
    times: list[float] = []
    while len(times) < least or (sum(times) < least_s and len(times) < 2000):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return min(times)


def _data(given: str | PathLike[str] | None) -> Path | None:
    named = given if given is not None else os.environ.get("KILOWAIT_DATA")
    if not named:
        return None
    folder = Path(named)
    if not (folder / "swf").is_dir():
        raise InputError(f"the folder of real logs is {folder}, but it has no swf/ in it; name the right one")
    return folder


def _rules(name: str, jobs: JobTable, *, targets: bool, quick: bool) -> Iterator[BenchResult]:
    cluster = kw.Cluster.from_nodes(NODES)
    for rule, (policy, backfill, target) in RULES.items():
        seconds = best_s(partial(kw.simulate, jobs, cluster, policy, backfill), quick=quick)
        yield BenchResult(f"{name}, {rule}", len(jobs) / seconds, "jobs/s", target if targets else None)


def _real_logs(folder: Path, quick: bool) -> Iterator[BenchResult]:
    for name, file in REAL_LOGS.items():
        path = folder / "swf" / file
        if not path.exists():
            yield BenchResult(f"{name}, FCFS + EASY", None, note=f"{path} is not there")
            continue
        jobs = kw.read_trace(path)
        cluster = kw.Cluster.from_nodes(int(jobs.meta["max_procs"]))
        seconds = best_s(
            partial(kw.simulate, jobs, cluster, "fcfs", "easy", on_oversized="drop"), quick=quick
        )
        yield BenchResult(f"{name}, FCFS + EASY", len(jobs) / seconds, "jobs/s", 4e6)


def _levers(name: str, log: Path | None, quick: bool) -> Iterator[BenchResult]:
    """What levers cost on a log, or on the Lublin model's workload."""
    if log is not None and not log.exists():
        yield BenchResult(f"{name}, levers", None, note=f"{log} is not there")
        return
    words = ("-m", "kilowait.experiments.bench_power_controls", str(log or ""), "quick" if quick else "whole")
    ratios = json.loads(_python(*words, OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1"))
    for what, ratio in zip(LEVERS, ratios, strict=True):
        note = "the plain run and its metrics"
        yield BenchResult(f"{name}, {what}", ratio, "times", 1.5, less_is_better=True, note=note)


def interleaved_ratio(one: Callable[[], Any], other: Callable[[], Any], *, quick: bool) -> float:
    """Seconds of the other over seconds of the one; by turns, so that a change of the clock rate meets both."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(3):
        for call, seconds in zip((one, other), times, strict=True):
            seconds.append(best_s(call, quick=quick))
    return min(times[1]) / min(times[0])


def _beside(jobs: JobTable) -> Iterator[BenchResult]:
    """Others on the first jobs of the same workload, and kilowait on just those."""
    few = jobs[: bench_peers.TWIN_JOBS]
    cluster = kw.Cluster.from_nodes(NODES)
    for rule, (policy, backfill, _) in RULES.items():
        seconds = bench_peers.twin_s(few, NODES, policy, backfill)
        if seconds is None:
            yield BenchResult(
                "plain-Python twin", None, note="runs from a checkout only: tests/oracle is not there"
            )
            break
        ours = best_s(partial(kw.simulate, few, cluster, policy, backfill), quick=True)
        note = (
            f"first {len(few):,} jobs; kilowait on those: {len(few) / ours:,.0f}, {seconds / ours:,.0f} times"
        )
        yield BenchResult(f"plain-Python twin, {rule}", len(few) / seconds, "jobs/s", note=note)
    few = jobs[: bench_peers.ACCASIM_JOBS]
    for rule in ("FCFS", "FCFS + EASY"):
        policy, backfill, _ = RULES[rule]
        answer = bench_peers.accasim_s(few, NODES, backfill)
        if isinstance(answer, str):
            yield BenchResult("AccaSim", None, note=answer)
            break
        ours = best_s(partial(kw.simulate, few, cluster, policy, backfill), quick=True)
        note = f"first {len(few):,} jobs, reading included; {answer / ours:,.0f} times"
        yield BenchResult(f"AccaSim, {rule}", len(few) / answer, "jobs/s", note=note)


def _machine_size(jobs: JobTable, quick: bool) -> BenchResult:
    """The same jobs 192 times larger on a machine 192 times larger: the same queue, so the same cost is due."""
    larger = jobs.with_columns(nodes=jobs["nodes"] * TIMES_LARGER)
    small, large = kw.Cluster.from_nodes(NODES), kw.Cluster.from_nodes(NODES * TIMES_LARGER)
    ratio = interleaved_ratio(
        partial(kw.simulate, jobs, small, "fcfs", "easy"),
        partial(kw.simulate, larger, large, "fcfs", "easy"),
        quick=quick,
    )
    return BenchResult("cost a job, 49,152 nodes over 256", ratio, "times", 1.2, less_is_better=True)


def _million(count: int) -> Iterator[BenchResult]:
    name = f"{count:,} jobs, 49,152 nodes, load 0.9, EASY"
    seconds, peak = json.loads(_python("-c", _MILLION, str(count)))
    whole = count == 1_000_000
    yield BenchResult(name, seconds, "s", 10.0 if whole else None, less_is_better=True)
    if peak is None:
        yield BenchResult("their peak memory", None, note="this system has no /proc to say it")
    else:
        yield BenchResult("their peak memory", peak / 1e9, "GB", 1.0 if whole else None, less_is_better=True)


def _placed(count: int, folder: Path | None) -> Iterator[BenchResult]:
    name = f"{count:,} jobs of one GPU, 6,212 GPUs, first fit"
    whole = count == 1_000_000
    yield BenchResult(
        name, bench_gpu_engine.first_fit_s(count), "s", 30.0 if whole else None, less_is_better=True
    )
    pods = bench_gpu_engine.pods_of(folder)
    whose = "openb's" if "workload" not in pods.meta else "made"
    seconds = best_s(bench_gpu_engine.fgd_run(pods), quick=True)
    note = f"{len(pods):,} pods"
    yield BenchResult(f"{whose} pods, 6,212 GPUs, FGD", seconds, "s", 2.0, less_is_better=True, note=note)


def _curie(folder: Path) -> Iterator[BenchResult]:
    path = folder / "swf" / CURIE
    if not path.exists():
        yield BenchResult("CEA-Curie", None, note=f"{path} is not there")
        return
    seconds = best_s(partial(kw.read_trace, path), quick=True, warm=False)
    jobs = kw.read_trace(path)
    yield BenchResult("CEA-Curie, read", seconds, "s", 3.0, less_is_better=True, note=f"{len(jobs):,} jobs")
    cluster = kw.Cluster.from_nodes(int(jobs.meta["max_procs"]))
    seconds = best_s(partial(kw.simulate, jobs, cluster, "fcfs", "easy", on_oversized="drop"), quick=True)
    yield BenchResult("CEA-Curie, FCFS + EASY", seconds, "s", 3.0, less_is_better=True)


def _start_up(quick: bool) -> Iterator[BenchResult]:
    clock = "import time; t = time.perf_counter(); import kilowait; print(time.perf_counter() - t)"
    seconds = min(float(_python("-c", clock)) for _ in range(3))
    yield BenchResult("import kilowait", seconds, "s", 0.4, less_is_better=True)
    words = ("-m", "kilowait.cli", "simulate", "lublin:1000:128")
    seconds = best_s(partial(_python, *words), quick=True)
    yield BenchResult("from shell to table, cached", seconds, "s", 1.5, less_is_better=True)
    if quick:
        return
    with tempfile.TemporaryDirectory() as empty:
        began = time.perf_counter()
        _python(*words, KILOWAIT_CACHE_DIR=empty)
        seconds = time.perf_counter() - began
    yield BenchResult("from shell to table, nothing compiled yet", seconds, "s", 20.0, less_is_better=True)


def _python(*words: str, **environment: str) -> str:
    """What another Python says on stdout."""
    done = subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no words"])[-1]
        raise InputError(f"a measure could not be made: another Python ended with {done.returncode}: {last}")
    return done.stdout
