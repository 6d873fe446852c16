"""Speed of kilowait and other simulators on lublin_256, and agreement of their start times."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.oracle import recorded_starts

from benchmarks.reproduce.data_paths import Sources
from benchmarks.reproduce.text_tables import of, table
from benchmarks.speed import other_simulators, simulator
from benchmarks.speed.measurement import best_s
from kilowait.cluster import Cluster
from kilowait.errors import InputError
from kilowait.policies import simulate

__all__ = ["OTHERS", "results", "text"]

OTHERS: dict[str, dict[str, float]] = {
    "FCFS": {"pyss": 23_000, "RLScheduler": 4_850, "AccaSim": 196, "RAPS": 158, "CQSim": 41},
    "FCFS + EASY": {"AccaSim": 2_110, "pyss": 1_320, "CQSim": 657, "RAPS": 203},
    "FCFS + conservative": {"CQSim": 191, "pyss": 72},
}
"""Jobs per CPU second on the 10,000 jobs of lublin_256, one core, recorded on a different machine."""
NODES = 256


def results(sources: Sources, report_progress: Callable[[str], None]) -> dict[str, Any]:
    """Measure jobs per second and compare start times; takes about 20 s."""
    if sources.oracles.resolve() != (sources.data.parent / "oracles").resolve():
        raise InputError(f"simulator-speed reads recorded results beside the data; {sources.oracles} is elsewhere")
    jobs, cluster = sources.jobs(simulator.LUBLIN_256), Cluster.from_nodes(NODES)
    results: dict[str, Any] = {
        "machine": {"python": platform.python_version(), "cpus": os.cpu_count(), "load": os.getloadavg()[0]},
        "speed": {},
        "agreement": [],
    }
    first_jobs = jobs[: other_simulators.REFERENCE_JOBS]
    for label in OTHERS:
        report_progress(f"measuring {label}")
        policy, backfill, _ = simulator.POLICIES[label]
        ours_s = best_s(partial(simulate, jobs, cluster, policy, backfill))
        first_jobs_s = best_s(partial(simulate, first_jobs, cluster, policy, backfill), quick=True)
        reference_s = other_simulators.reference_simulator_s(first_jobs, NODES, policy, backfill)
        results["speed"][label] = {
            "jobs_per_s": len(jobs) / ours_s,
            "twin_times_slower": None if reference_s is None else reference_s / first_jobs_s,
        }
    for run in recorded_starts.LUBLIN + recorded_starts.KTH:
        sources.recorded(run.log)  # raises a clear error if the file is missing or damaged
        start, theirs = recorded_starts.ours(sources.data, run), recorded_starts.theirs(sources.data, run)
        means = recorded_starts.means(sources.data, run, start) / recorded_starts.means(sources.data, run, theirs) - 1
        results["agreement"].append(
            {
                "log": run.log,
                "run": run.run,
                "by": run.whose,
                "equal": int((start == theirs).sum()),
                "jobs": len(start),
                "mean_differences": dict(zip(recorded_starts.MEANS, means.tolist(), strict=True)),
            }
        )
    return results


def text(results: dict[str, Any]) -> str:
    """Format the results as tables."""
    machine = results["machine"]
    rows = []
    for policy, others in OTHERS.items():
        jobs_per_s = results["speed"][policy]["jobs_per_s"]
        for name, speed in others.items():
            rows.append([f"{policy}, {name}", f"{speed:,.0f}", f"{jobs_per_s:,.0f}", f"{jobs_per_s / speed:,.0f}"])
        slowdown = results["speed"][policy]["twin_times_slower"]
        if slowdown is not None:
            rows.append([f"{policy}, our plain-Python reference simulator", "-", "-", f"{slowdown:,.0f}"])
    agreement = []
    for run in results["agreement"]:
        means = [f"{100 * run['mean_differences'][name]:+.3f} %" for name in ("wait", "bounded slowdown")]
        agreement.append([f"{run['log']} {run['run']}", run["by"], of(run["equal"], run["jobs"]), *means])
    return "\n\n".join(
        [
            "lublin_256, 10,000 jobs, 256 processors: jobs per second on one core; ours measured now\n"
            f"(Python {machine['python']}, {machine['cpus']} cores, load {machine['load']:.2f} before)",
            table(["", "other simulator", "kilowait", "speed-up"], rows),
            "Speeds of others are per CPU second, recorded on a different machine; ours is per second of "
            "wall-clock time.\n"
            f"The reference simulator was measured now, on the first {other_simulators.REFERENCE_JOBS} jobs. "
            "AccaSim does not enforce EASY's reservation.",
            table(["", "computed by", "starts equal", "mean wait", "mean bsld"], agreement),
        ]
    )
