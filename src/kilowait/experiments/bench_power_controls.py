"""What levers and accounts cost: from jobs to metrics with them, over the same without; what a user waits for.

`python -m kilowait.experiments.bench_power_controls LOG quick|whole`, as `bench` calls it, prints a ratio for each of
`bench.LEVERS`. It is a process of its own because numpy takes the number of its threads when it is first imported:
with several, on a busy machine, short sums wait for other threads longer than they take, in the plain run too.
"""

from __future__ import annotations

import json
import sys
from functools import partial

import kilowait as kw
from kilowait.energy import PowerModel, account_energy
from kilowait.energy.controls import resolve_controls
from kilowait.experiments.bench import LEVERS, NODES, SEED, interleaved_ratio
from kilowait.jobs import JobTable

__all__ = ["ratios"]


def ratios(jobs: JobTable, nodes: int, *, quick: bool) -> list[float]:
    """For each of `LEVERS`: seconds with it, accounts included, over seconds of the plain run and its metrics."""
    cluster, model = kw.Cluster.from_nodes(nodes), PowerModel.preset("taurus")

    def plain() -> None:
        kw.metrics(kw.simulate(jobs, cluster, "fcfs", "easy", on_oversized="drop"))

    def levered(text: str) -> None:
        pulled = resolve_controls(text, jobs, cluster, model)
        log = kw.simulate(
            pulled.jobs, cluster, "fcfs", "easy", on_oversized="drop", power_controls=pulled.controls
        )
        kw.metrics(log)
        account_energy(log, cluster, model, tables=pulled.tables).metrics()

    return [interleaved_ratio(plain, partial(levered, text), quick=quick) for text in LEVERS.values()]


def main(log: str, speed: str) -> None:
    """Print them; without a log, of the Lublin model's workload."""
    if log:
        jobs = kw.read_trace(log)
        nodes = int(jobs.meta["max_procs"])
    else:
        jobs, nodes = kw.lublin(10_000, NODES, load=1.06, seed=SEED), NODES
    sys.stdout.write(json.dumps(ratios(jobs, nodes, quick=speed == "quick")))


if __name__ == "__main__":
    main(*sys.argv[1:])
