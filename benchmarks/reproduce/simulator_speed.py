"""How fast others are and how fast we are on lublin_256, and how many of their starts are ours."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.oracle import recorded_starts

from benchmarks.reproduce.data_paths import Sources
from benchmarks.reproduce.text_tables import of, table
from kilowait.cluster import Cluster
from kilowait.errors import InputError
from kilowait.experiments import bench, bench_peers
from kilowait.policies import simulate

__all__ = ["OTHERS", "results", "text"]

OTHERS: dict[str, dict[str, float]] = {
    "FCFS": {"pyss": 23_000, "RLScheduler": 4_850, "AccaSim": 196, "RAPS": 158, "CQSim": 41},
    "FCFS + EASY": {"AccaSim": 2_110, "pyss": 1_320, "CQSim": 657, "RAPS": 203},
    "FCFS + conservative": {"CQSim": 191, "pyss": 72},
}
"""Jobs per CPU second on the 10,000 jobs of lublin_256, one core, recorded on another machine than this."""
NODES = 256


def results(sources: Sources, say: Callable[[str], None]) -> dict[str, Any]:
    """Jobs per second measured now, and starts compared; takes about 20 s."""
    if sources.oracles.resolve() != (sources.data.parent / "oracles").resolve():
        raise InputError(
            f"simulators looks for recorded results beside the data; {sources.oracles} is elsewhere"
        )
    jobs, cluster = sources.jobs(bench.LUBLIN_256), Cluster.from_nodes(NODES)
    found: dict[str, Any] = {
        "machine": {"python": platform.python_version(), "cpus": os.cpu_count(), "load": os.getloadavg()[0]},
        "speed": {},
        "agreement": [],
    }
    few = jobs[: bench_peers.TWIN_JOBS]
    for rule in OTHERS:
        say(f"measuring {rule}")
        policy, backfill, _ = bench.RULES[rule]
        ours = bench.best_s(partial(simulate, jobs, cluster, policy, backfill))
        short = bench.best_s(partial(simulate, few, cluster, policy, backfill), quick=True)
        twin = bench_peers.twin_s(few, NODES, policy, backfill)
        found["speed"][rule] = {
            "jobs_per_s": len(jobs) / ours,
            "twin_times_slower": None if twin is None else twin / short,
        }
    for run in recorded_starts.LUBLIN + recorded_starts.KTH:
        sources.recorded(run.log)  # says in words what is wrong with the file, if anything
        start, theirs = recorded_starts.ours(sources.data, run), recorded_starts.theirs(sources.data, run)
        means = (
            recorded_starts.means(sources.data, run, start) / recorded_starts.means(sources.data, run, theirs)
            - 1
        )
        found["agreement"].append(
            {
                "log": run.log,
                "run": run.run,
                "by": run.whose,
                "equal": int((start == theirs).sum()),
                "jobs": len(start),
                "mean_differences": dict(zip(recorded_starts.MEANS, means.tolist(), strict=True)),
            }
        )
    return found


def text(found: dict[str, Any]) -> str:
    """The tables."""
    machine = found["machine"]
    rows = []
    for rule, others in OTHERS.items():
        ours = found["speed"][rule]["jobs_per_s"]
        for name, speed in others.items():
            rows.append([f"{rule}, {name}", f"{speed:,.0f}", f"{ours:,.0f}", f"{ours / speed:,.0f}"])
        twin = found["speed"][rule]["twin_times_slower"]
        if twin is not None:
            rows.append([f"{rule}, our plain-Python twin", "-", "-", f"{twin:,.0f}"])
    agreement = []
    for run in found["agreement"]:
        means = [f"{100 * run['mean_differences'][name]:+.3f} %" for name in ("wait", "bounded slowdown")]
        agreement.append([f"{run['log']} {run['run']}", run["by"], of(run["equal"], run["jobs"]), *means])
    return "\n\n".join(
        [
            "lublin_256, 10,000 jobs, 256 processors: jobs per second on one core; ours measured now\n"
            f"(Python {machine['python']}, {machine['cpus']} cores, load {machine['load']:.2f} before)",
            table(["", "theirs", "kilowait", "times"], rows),
            "Theirs are per CPU second and were recorded on another machine, ours is per second of the clock.\n"
            f"The twin ran here and now, on the first {bench_peers.TWIN_JOBS} jobs. "
            "AccaSim does not enforce EASY's reservation.",
            table(["", "computed by", "starts equal", "mean wait", "mean bsld"], agreement),
        ]
    )
