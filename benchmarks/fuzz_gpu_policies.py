"""Fuzzing of GPU policies: every run ends, with all jobs complete or an error that names what is wrong.

    python -m benchmarks.fuzz_gpu_policies --cases 3000 --seed 0

Every case is a small random cluster of nodes that differ in GPUs, cores and memory, some random jobs (CPU-only jobs,
shares of GPUs, jobs of several nodes, jobs that no node can hold) and one of the GPU policies, with random settings. It
runs in a child process with a limit on time and memory. A finding is a run that exceeds a limit, a signal, any
exception but a `KilowaitError`, an error that names neither a job nor the policy, a job that is left waiting, and work
that was not done.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, cast

import numpy as np

import kilowait as kw
from kilowait.cluster import Cluster, NodeGroup
from kilowait.cluster.gpu_speeds import Speeds
from kilowait.engine.gpu.demand import node_types
from kilowait.engine.gpu.settings import PLACEMENTS
from kilowait.errors import KilowaitError, NoProgressError
from kilowait.jobs.execution_log import Outcome
from kilowait.policies import POLICIES, resolve
from kilowait.policies.round_based import ROUND_BASED_POLICIES

__all__ = ["Case", "Finding", "fuzz", "gpu_policies", "main", "random_case", "run_case", "serve"]

CASE_LIMIT_S = 120.0
"""Time limit of one case, seconds; endless preemption of a round-based policy is an error after 10,000 rounds."""
START_LIMIT_S = 300.0
"""Time limit of the first case of a child process, seconds: kernels may have to be compiled."""
MEMORY_LIMIT = 8 * 2**30
"""Address space of a child process, bytes."""
GPU_TYPES = ("T4", "V100", "A100")


class Finding(AssertionError):
    """A case that must not happen."""


@dataclass(frozen=True, eq=False)
class Case:
    """One simulation."""

    jobs: kw.JobTable
    cluster: Cluster
    policy: str
    speeds: Speeds
    settings: dict[str, Any]


def gpu_policies() -> list[str]:
    """The names of all policies that schedule GPU clusters; those that learn from ended jobs do not.

    >>> {"gavel", "las", "fcfs"} <= set(gpu_policies()), "easy+" in gpu_policies()
    (True, False)
    """
    learning = {name for name in POLICIES if (policy := resolve(name)).observes_jobs or policy.predicts}
    return sorted({*POLICIES, *ROUND_BASED_POLICIES} - learning)


def random_case(seed: int) -> Case:
    """The case of a seed.

    >>> random_case(1).cluster.node_level
    True
    """
    rng = np.random.default_rng(seed)
    cluster = _random_cluster(rng)
    jobs = _random_jobs(rng, cluster)
    settings: dict[str, Any] = {"on_oversized": "error" if rng.random() < 0.1 else "drop"}
    for name, share, values in (
        ("placement", 0.4, list(PLACEMENTS)),
        ("gpu_type_order", 0.3, ["any", "fastest"]),
        ("preempt", 0.2, [True, False]),
        ("migrate", 0.2, [True]),
        ("head_of_line_blocking", 0.3, [False]),
        ("min_run_before_preempt_s", 0.2, [10.0, 1000.0]),
        ("grace_s", 0.2, [5.0, 400.0]),
        ("checkpoint_write_s", 0.2, [3.0, 400.0]),
        ("checkpoint_load_s", 0.2, [5.0, 90.0]),
        ("checkpoint_s", 0.2, [60.0]),
        ("at_limit", 0.2, ["kill"]),
    ):
        if rng.random() < share:
            settings[name] = values[rng.integers(len(values))]
    if rng.random() < 0.3:
        settings |= {"round_interval_s": float(rng.choice([60.0, 360.0, 3600.0])), "rounds": bool(rng.random() < 0.6)}
    if rng.random() < 0.01:  # jobs may preempt each other for ever
        settings |= {"checkpoint_s": float(np.inf), "checkpoint_load_s": 500.0}
    types = tuple(dict.fromkeys(kind.gpu for kind in node_types(cluster) if kind.gpu)) or ("T4",)
    shape = (len(types), len(jobs))
    speed = rng.choice([0.0, 0.3, *[1.0] * 5, 2.5], shape)
    speeds = Speeds(types, speed, rng.choice([0.5, 1.0], shape), np.ones(shape, np.int8))
    names = gpu_policies()
    return Case(jobs, cluster, names[rng.integers(len(names))], speeds, settings)


def _random_cluster(rng: np.random.Generator) -> Cluster:
    """One to four groups of up to four nodes each, some without GPUs, some for one queue only."""
    only_cpu = rng.random() < 0.05
    groups = []
    for number in range(rng.integers(1, 5)):
        gpus = 0 if only_cpu or rng.random() < 0.2 else int(rng.choice([1, 2, 4, 8]))
        groups.append(
            NodeGroup(
                f"g{number}",
                int(rng.integers(0 if number else 1, 5)),
                cores=int(rng.choice([2, 16, 64])),
                memory_gb=float(rng.choice([0.0, 0.0, 16.0, 64.0])),
                gpus=gpus,
                gpu_type=str(rng.choice(GPU_TYPES)) if gpus else "",
                node_level=True,
            )
        )
    queues = {}
    if rng.random() < 0.3:
        names = [group.name for group in groups]
        queues = {f"q{i}": tuple(rng.choice(names, rng.integers(1, len(names) + 1), replace=False)) for i in range(2)}
    return Cluster(tuple(groups), queues, name="random")


def _random_jobs(rng: np.random.Generator, cluster: Cluster) -> kw.JobTable:
    """Up to 16 jobs; some fit no node, or nodes of one type only."""
    n = int(rng.integers(1, 17))
    nodes = rng.choice([1, 1, 1, 1, 2, 3], n)
    gpus = nodes * rng.choice([0, 1, 1, 1, 2, 2, 4, 5], n)
    gpu_milli = np.where((gpus == 1) & (rng.random(n) < 0.5), rng.choice([1, 100, 300, 500, 700], n), 1000)
    columns: dict[str, Any] = {
        "gpus_may_span_nodes": (rng.random(n) < 0.2).astype(np.int8),
        "priority": rng.choice([0.0, 1.0, 5.0], n),
        "user": rng.integers(0, 3, n),
        "estimate_s": rng.choice([1.0, 500.0, 5000.0], n),
        "cancel_s": np.where(rng.random(n) < 0.1, rng.choice([0.0, 700.0, 9000.0], n), np.inf),
        "begin_s": np.where(rng.random(n) < 0.1, 800.0, -np.inf),
        "checkpoint_s": rng.choice([np.nan, np.nan, 0.0, 50.0], n),
        "memory_mb": nodes * rng.choice([0, 100, 8000, 20_000], n),
        "gpu_utilization": rng.choice([np.nan, 0.2, 0.9], n),
    }
    columns = {name: values for name, values in columns.items() if rng.random() < 0.5}
    labels: dict[str, tuple[str, ...]] = {}
    if rng.random() < 0.3:
        labels["gpu_types"] = ("T4", "V100|A100")
        columns["gpu_types"] = rng.integers(-1, 2, n)
    if cluster.queues:
        labels["queue"] = (*cluster.queues, "other")
        columns["queue"] = rng.integers(-1, 3, n)
    return kw.JobTable(
        job_id=np.arange(1, n + 1),
        submit_s=np.sort(rng.choice([0.0, 30.0, 400.0, 2000.0], n)),
        runtime_s=rng.choice([0.0, 1.0, 300.0, 2500.0, 20_000.0], n),
        nodes=nodes,
        gpus=gpus,
        gpu_milli=gpu_milli,
        cores=nodes * rng.choice([0, 1, 1, 2, 8, 32], n),
        labels=labels,
        **columns,
    )


def run_case(case: Case) -> str:
    """Run a case; return how it ended: complete, or the class of the error. Raises `Finding`.

    >>> run_case(random_case(1))
    'complete'
    """
    try:
        log = kw.simulate(case.jobs, case.cluster, case.policy, speeds=case.speeds, **case.settings)
    except NoProgressError as error:
        if "lost the work of its last" in str(error):  # jobs preempt each other, which settings may cause
            return type(error).__name__
        raise Finding(f"no progress: {error}") from error
    except KilowaitError as error:
        if "job " not in str(error) and case.policy not in str(error):
            raise Finding(f"an error names neither job nor policy: {error}") from error
        return type(error).__name__
    outcome = log.job_outcome
    if (outcome == Outcome.UNSTARTED).any():
        raise Finding(f"jobs {case.jobs['job_id'][outcome == Outcome.UNSTARTED].tolist()} have not ended")
    assert log.pieces is not None
    work_s = np.bincount(log.job, log.pieces.work_s - log.pieces.lost_s, len(case.jobs))
    done = outcome == Outcome.COMPLETED
    if not np.allclose(work_s[done], case.jobs["runtime_s"][done], rtol=1e-6, atol=1e-6):
        raise Finding(f"work done {work_s.tolist()} differs from the run times {case.jobs['runtime_s'].tolist()}")
    return "complete"


def serve(connection: Connection) -> None:
    """Run the cases whose seeds arrive, in a child process: send (whether all is well, text)."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    while True:
        seed = connection.recv()
        try:
            connection.send((True, run_case(random_case(seed))))
        except Exception:
            connection.send((False, traceback.format_exc()))


class _Child:
    """A child process that runs cases, and is replaced when it dies or exceeds the time limit."""

    def __init__(self, serve: Callable[[Connection], None]) -> None:
        self._serve, self._process = serve, cast("Any", None)

    def run(self, seed: int, limit_s: float, start_limit_s: float) -> tuple[bool, str]:
        """Run one case; return whether all is well, and a text."""
        if self._process is None:
            context = multiprocessing.get_context("spawn")
            self._connection, theirs = context.Pipe()
            self._process = context.Process(target=self._serve, args=(theirs,), daemon=True)
            self._process.start()
            theirs.close()
            limit_s = max(limit_s, start_limit_s)
        self._connection.send(seed)
        try:
            if self._connection.poll(limit_s):
                well, text = self._connection.recv()
                return bool(well), str(text)
            text = f"the run has not ended after {limit_s:g} s"
        except EOFError:
            self._process.join()
            text = f"the child process ended with exit status {self._process.exitcode}"
        self.stop()
        return False, text

    def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None


def fuzz(
    cases: int,
    seed: int = 0,
    *,
    limit_s: float = CASE_LIMIT_S,
    start_limit_s: float = START_LIMIT_S,
    serve: Callable[[Connection], None] = serve,
) -> Counter[str]:
    """Run this many cases; return how often each end was seen. Raises `Finding` with the seed of the case.

    `serve` runs in the child processes; `start_limit_s` is the time limit of the first case of each.

    >>> sum(fuzz(3, seed=1).values())
    3
    """
    ends: Counter[str] = Counter()
    child = _Child(serve)
    try:
        for case_seed in range(seed, seed + cases):
            well, text = child.run(case_seed, limit_s, start_limit_s)
            if not well:
                case = random_case(case_seed)
                raise Finding(f"seed {case_seed}, policy {case.policy}, {case.settings}: {text}")
            ends[text] += 1
    finally:
        child.stop()
    return ends


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=3000, help="simulations to run")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start_time = time.perf_counter()
    try:
        ends = fuzz(options.cases, options.seed)
    except Finding as finding:
        sys.exit(f"found: {finding}")
    sys.stdout.write(f"nothing found: {dict(ends)} in {time.perf_counter() - start_time:.0f} s\n")


if __name__ == "__main__":
    main()
