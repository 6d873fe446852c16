"""Gavel's table (Narayanan et al., OSDI'20): mean job completion time on 36 K80, 36 P100 and 36 V100, single-GPU jobs.

Jobs are sampled as in its simulator, seed 0, at four rates; jobs 4000 to 4999 are counted. The rounds
are in gavel_rounds.py, the policies in gavel_shares.py. The throughputs are those of its repository
(simulation_throughputs.json).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.reproduce.data_paths import Sources
from benchmarks.reproduce.gavel_rounds import TYPES, Policy, Work, completion_times
from benchmarks.reproduce.gavel_shares import AlloX, Fifo, fifo_by_type, las, las_by_type
from benchmarks.reproduce.text_tables import percent, table
from kilowait.cluster.gpu_catalogue import Throughputs, read_throughputs
from kilowait.synth import gavel_jobs

__all__ = ["POLICIES", "PUBLISHED", "RATES", "mean_hours", "results", "text", "work_at"]

SEED = 0
FIRST, LAST = 4000, 5000
RATES = (0.4, 4.0, 4.8, 5.2)
PUBLISHED = {
    "FIFO": (17.58, 25.38, 99.19, 151.67),
    "FIFO by type": (15.31, 17.08, 22.24, 56.69),
    "LAS": (23.26, 23.49, 35.79, 63.78),
    "AlloX": (17.58, 17.13, 20.92, 21.96),
    "LAS by type": (17.58, 16.82, 18.97, 22.02),
}
"""Hours at these rates, from continuous_jobs.ipynb in its repository."""
JOBS = 30_000
"""Enough jobs for the slowest policy to finish while jobs still arrive."""
CHOICES = range(8)
"""Seeds of FIFO's own random choice."""
FASTER = (1.0, 1.015, 1.0)
"""Assumed speed factors of K80, P100, V100: the one of four guesses nearest to the published values."""


class PolicySettings(NamedTuple):
    """The factory of a policy by seed, and its round settings."""

    make: Callable[[int], Policy]
    by_type: bool
    strict: bool


POLICIES = {
    "FIFO": PolicySettings(Fifo, by_type=False, strict=True),
    "FIFO by type": PolicySettings(lambda seed: fifo_by_type, by_type=True, strict=True),
    "LAS": PolicySettings(lambda seed: las, by_type=False, strict=False),
    "AlloX": PolicySettings(lambda seed: AlloX(), by_type=True, strict=False),
    "LAS by type": PolicySettings(lambda seed: las_by_type, by_type=True, strict=False),
}


def work_at(rate: float, speeds: Throughputs, jobs: int = JOBS, faster: Sequence[float] = (1.0, 1.0, 1.0)) -> Work:
    """Gavel's jobs at a given rate per hour and with given speed factors of the GPU types."""
    jobs_table = gavel_jobs(jobs, rate, SEED)
    by_model = np.array(
        [
            [speeds.consolidated[gpu_job_type][model, 1] for gpu_job_type in TYPES]
            for model in jobs_table.labels["model"]
        ]
    )
    speed = by_model[jobs_table["model"]] * np.array(faster)
    return Work(np.array(jobs_table["submit_s"], float), jobs_table["runtime_s"] * speed[:, TYPES.index("v100")], speed)


def mean_hours(name: str, work: Work, choice: int = SEED, first: int = FIRST, last: int = LAST) -> float:
    """Mean hours from arrival to finish; `choice` is the seed of the policy's random choices."""
    policy = POLICIES[name]
    completion_s = completion_times(
        work, policy.make(choice), first, last, seed=SEED, by_type=policy.by_type, strict=policy.strict
    )
    return float(completion_s.mean() / 3600)


def results(sources: Sources, report_progress: Callable[[str], None]) -> dict[str, Any]:
    """Mean hours by rate and policy, of FIFO also for other choices, and of the run times alone."""
    start_s = time.perf_counter()
    speeds = read_throughputs(
        sources.file("gpu/gavel_throughputs.json.gz", "it is simulation_throughputs.json of Gavel, packed")
    )
    work = work_at(RATES[0], speeds, LAST)
    hours = work.steps[FIRST:, None] / work.speed[FIRST:] / 3600
    output: dict[str, Any] = {
        "V100": float(hours[:, TYPES.index("v100")].mean()),
        "best type": float(hours.min(axis=1).mean()),
        "hours": {},
        "faster": {},
        "choices": {},
    }
    for rate in RATES:
        work, faster = work_at(rate, speeds), work_at(rate, speeds, faster=FASTER)
        as_published, with_faster_p100 = (output["hours"].setdefault(rate, {}), output["faster"].setdefault(rate, {}))
        for name in POLICIES:
            as_published[name], with_faster_p100[name] = mean_hours(name, work), mean_hours(name, faster)
            report_progress(f"{rate} jobs/h {name}: {as_published[name]:.2f} h ({time.perf_counter() - start_s:.0f} s)")
        if rate != RATES[0]:  # without waiting jobs it makes no difference
            output["choices"][rate] = [mean_hours("FIFO", work, choice) for choice in CHOICES]
    return output


def text(output: dict[str, Any]) -> str:
    """The published table with our values, and the effect of FIFO's random choices."""
    rows = []
    for rate_number, rate in enumerate(output["hours"]):
        for name, published in PUBLISHED.items():
            as_published_h, faster = (output[variant][rate][name] for variant in ("hours", "faster"))
            row = [f"{rate} jobs/h {name}", f"{published[rate_number]:.2f}"]
            for hours in (as_published_h, faster):
                row += [f"{hours:.2f}", percent(hours, published[rate_number])]
            rows.append(row)
    spread = []
    for rate, values in output["choices"].items():
        figures = (PUBLISHED["FIFO"][RATES.index(rate)], min(values), float(np.mean(values)), max(values))
        spread.append([f"{rate} jobs/h", *(f"{figure:.2f}" for figure in figures)])
    return "\n\n".join(
        [
            "Gavel, single-GPU jobs 4000 to 4999, seed 0: mean completion time in hours",
            table(["", "published", "here", "difference", "if faster", "difference"], rows),
            f"if faster: P100 {FASTER[1]} times as fast as in the table of throughputs",
            f"Run times alone: {output['V100']:.2f} h on V100, {output['best type']:.2f} h each on its best type.",
            f"FIFO with {len(CHOICES)} seeds of its own draws\n"
            + table(["", "published", "least", "mean", "most"], spread),
        ]
    )
