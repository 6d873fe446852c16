"""GAIA (Hanafy et al., ASPLOS'24): five carbon-aware waiting policies on unlimited resources.

Its 1,000 PAI jobs (`pai_1k.csv` of umassos/GAIA) run from hour 24,544 of 2021-24 on with the life-cycle intensity of
Great Britain, known in advance. A short job (below 2 h) may wait 6 h, a long one 24 h. As in GAIA's program:

- Times are whole steps of 5 s, cut off.
- Lowest-Window and Carbon-Time know a job's class only and plan with the mean length of that class. They try to start
  after every full hour of waiting; Lowest-Slot may start at any step.
- Ecovisor takes one threshold a job, the 30th percentile of the 24 h after its submission, and runs in steps below it
  until the waiting is used up. WaitAwhile knows the length and takes the cleanest steps. Both interrupt the job.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.reproduce.data_paths import Sources
from benchmarks.reproduce.text_tables import table
from kilowait.errors import InputError

__all__ = ["RECORDED", "Job", "emitted", "results", "text"]

RECORDED = {"Lowest-Slot": 0.874, "Lowest-Window": 0.846, "Carbon-Time": 0.853, "Ecovisor": 0.877, "WaitAwhile": 0.790}
"""Emissions relative to no waiting, computed independently from GAIA's code and data."""
STEP_S = 5
HOUR = 3600 // STEP_S
SHORT = 2 * HOUR
WAIT = {True: 6 * HOUR, False: 24 * HOUR}
"""Maximum waits of short and long jobs, steps."""
FIRST_HOUR_OF_2023 = 24_544 - 2 * 8760
HOURS = 720
INTENSITY = "carbon/GB_2023_hourly.csv.gz"
JOBS = "*pai[_-]1k.csv*"
ABSENT = (
    "GAIA cannot be run: its list of 1,000 PAI jobs is not in the folder of data.\n"
    "Put pai_1k.csv of the repository umassos/GAIA (src/cluster_traces) anywhere below gpu/ to run it.\n"
    "The list of 100,000 PAI jobs is another sample, at other times, and has no recorded result."
)


class Job(NamedTuple):
    """A job; times in steps, `planned` is the mean length of its class."""

    submit: int
    length: int
    cpus: int
    wait: int
    planned: int


def emitted(jobs: list[Job], intensity: NDArray[np.float64]) -> dict[str, float]:
    """Intensity summed over the steps and processors of all jobs, by policy; "no wait" is the first.

    >>> job = Job(submit=0, length=HOUR, cpus=1, wait=2 * HOUR, planned=HOUR)
    >>> sums = emitted([job], np.repeat([4.0, 2.0, 3.0, *[5.0] * 24], HOUR))
    >>> {policy: total / HOUR for policy, total in sums.items()}["Lowest-Window"]
    2.0
    """
    sums = dict.fromkeys(["no wait", *RECORDED], 0.0)
    prefix = np.concatenate([[0.0], np.cumsum(intensity)])
    for submit, length, cpus, wait, planned in jobs:
        hourly = submit + np.arange(0, wait + 1, HOUR)
        plan = prefix[hourly + planned] - prefix[hourly]
        saved_per_time = (plan[0] - plan) / (hourly - submit + planned)
        starts = {
            "no wait": submit,
            "Lowest-Slot": submit + int(np.argmin(intensity[submit : submit + wait + 1])),
            "Lowest-Window": hourly[np.argmin(plan)],
            "Carbon-Time": hourly[np.argmax(saved_per_time)],
        }
        for policy, start in starts.items():
            sums[policy] += cpus * float(prefix[start + length] - prefix[start])
        window = intensity[submit : submit + length + wait]
        clean = window < np.quantile(intensity[submit : submit + 24 * HOUR], 0.3)
        runs = np.flatnonzero(clean | (np.cumsum(~clean) > wait))[:length]
        sums["Ecovisor"] += cpus * float(window[runs].sum())
        sums["WaitAwhile"] += cpus * float(np.partition(window, length - 1)[:length].sum())
    return sums


def results(sources: Sources, report_progress: Callable[[str], None]) -> dict[str, Any]:
    """Emissions relative to no waiting, by policy; empty without the job list."""
    files = sorted((sources.data / "gpu").rglob(JOBS))
    if not files:
        return {}
    report_progress(f"{files[0].name}, {INTENSITY}")
    intensity = np.repeat(_intensity(sources), HOUR)
    jobs = _jobs(files[0])
    last = max(job.submit + job.wait + max(job.length, job.planned) for job in jobs)
    if last > len(intensity):
        raise InputError(f"{files[0]} has jobs that may end in hour {last // HOUR:,}, but the series has {HOURS:,}")
    sums = emitted(jobs, intensity)
    return {"jobs": len(jobs), "relative": {policy: sums[policy] / sums["no wait"] for policy in RECORDED}}


def text(output: dict[str, Any]) -> str:
    """The table, or a message that the job list is missing."""
    if not output:
        return ABSENT
    rows = [
        [policy, f"{recorded:.3f}", f"{ours:.3f}", f"{ours - recorded:+.4f}"]
        for (policy, recorded), ours in zip(RECORDED.items(), output["relative"].values(), strict=True)
    ]
    title = f"GAIA, {output['jobs']:,} PAI jobs, Great Britain from hour 24,544 of 2021-24"
    parts = [f"{title}: emissions relative to no wait", table(["", "recorded", "here", "difference"], rows)]
    return "\n\n".join(parts)


def _jobs(path: Path) -> list[Job]:
    try:
        rows = np.loadtxt(path, delimiter=",", skiprows=1, ndmin=2)
        submit_s, length_s, cpus = rows.T
    except (OSError, EOFError, ValueError) as error:
        raise InputError(f"{path} cannot be read as arrival, length and cpus ({error}); download it again") from None
    length = length_s / STEP_S
    classes = {True: length <= SHORT, False: length >= SHORT}
    planned = {short: int(length[in_class].mean()) for short, in_class in classes.items() if in_class.any()}
    jobs = []
    for submit, steps, processors in np.column_stack([submit_s / STEP_S, length, cpus]).astype(int).tolist():
        short = steps < SHORT
        jobs.append(Job(submit, steps, processors, WAIT[short], planned[short]))
    return jobs


def _intensity(sources: Sources) -> NDArray[np.float64]:
    """Hourly life-cycle carbon intensity, g/kWh."""
    path = sources.file(INTENSITY, "it is Electricity Maps' hourly series of Great Britain")
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            heads, *rows = csv.reader(file)
        column = next(place for place, head in enumerate(heads) if "(LCA)" in head)
        hours = rows[FIRST_HOUR_OF_2023 : FIRST_HOUR_OF_2023 + HOURS]
        return np.array([float(row[column]) for row in hours])
    except (OSError, EOFError, ValueError, StopIteration, IndexError) as error:
        raise InputError(f"{path} cannot be read as hourly intensities ({error!r}); download it again") from None
