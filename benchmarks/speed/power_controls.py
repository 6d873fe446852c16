"""Benchmark of power controls and energy accounting: run time relative to a plain run, from jobs to metrics.

`python -m benchmarks.speed.power_controls LOG quick|full`, called by `simulator`, prints one ratio for each of
`simulator.POWER_CONTROLS`. It runs in a separate process because numpy sets its number of threads when it is imported:
with several threads on a busy machine, waiting for other threads would take longer than short sums, also in the plain
run.
"""

from __future__ import annotations

import json
import sys
from functools import partial

import kilowait as kw
from benchmarks.speed.measurement import interleaved_ratio
from benchmarks.speed.simulator import NODES, POWER_CONTROLS, SEED
from kilowait.energy import PowerModel
from kilowait.jobs import JobTable

__all__ = ["run_time_ratios"]


def run_time_ratios(jobs: JobTable, nodes: int, *, quick: bool) -> list[float]:
    """For each of `POWER_CONTROLS`: seconds with controls and accounting over seconds of a plain run with metrics."""
    cluster, model = kw.Cluster.from_nodes(nodes), PowerModel.preset("taurus")

    def plain() -> None:
        kw.metrics(kw.simulate(jobs, cluster, "fcfs", "easy", on_oversized="drop"))

    def controlled(text: str) -> None:
        log = kw.simulate(jobs, cluster, "fcfs", "easy", on_oversized="drop", power_controls=text, power=model)
        kw.metrics(log)
        kw.account_energy(log, cluster, model).metrics()

    return [interleaved_ratio(plain, partial(controlled, text), quick=quick) for text in POWER_CONTROLS.values()]


def main(log: str, speed: str) -> None:
    """Print the ratios for a log; without a log, for the workload of the Lublin model."""
    if log:
        jobs = kw.read_trace(log)
        nodes = int(jobs.meta["max_procs"])
    else:
        jobs, nodes = kw.lublin(10_000, NODES, load=1.06, seed=SEED), NODES
    sys.stdout.write(json.dumps(run_time_ratios(jobs, nodes, quick=speed == "quick")))


if __name__ == "__main__":
    main(*sys.argv[1:])
