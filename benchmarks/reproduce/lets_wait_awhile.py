"""Let's wait awhile (Wiesner et al., Middleware'21), Scenario II: carbon-aware shifting of ML jobs in 2020.

3,387 jobs of 4 to 90 hours are submitted on workdays between 9 and 17 h, each drawing 2,036.6 W. A job that
would end outside working hours may end as late as 9 h of the next workday. The forecast is the
series itself with white noise of 5 % of its mean, with ten seeds. Jobs, noise
and the two peculiarities below are those of dos-group/lets-wait-awhile:

- Every window has one slot too many at its end, so even a job that may not be moved picks the better of two starts.
- A job that may be interrupted runs in every slot as clean as the worst it needs: with ties it runs longer.

Times are slots of 30 minutes since the beginning of 2020.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.reproduce.data_paths import Sources
from benchmarks.reproduce.text_tables import table
from kilowait.errors import InputError

__all__ = ["PUBLISHED", "Job", "Signal", "emitted", "random_jobs", "results", "text"]

COUNTRIES = {"DE": "ger_ci.csv.gz", "GB": "gb_ci.csv.gz", "FR": "fr_ci.csv.gz"}
PUBLISHED = {"DE": (5.91, 7.93), "GB": (6.56, 9.03), "FR": (4.77, 5.92)}
"""Avoided emissions, per cent: non-interruptible and interruptible jobs."""
JOBS = 3387
POWER_W = 2036.6
NOISE = 0.05
SEEDS = range(10)
SLOT_H = 0.5
KINDS = ("in one piece", "interruptible")


class Job(NamedTuple):
    """Submission and length of a job, slots."""

    submit: int
    length: int


class Signal(NamedTuple):
    """Carbon intensity by slot."""

    time: NDArray[np.datetime64]
    g_per_kwh: NDArray[np.float64]


def random_jobs() -> list[Job]:
    """The jobs of the paper: number per day, times of day, then lengths, from one random generator.

    >>> jobs = random_jobs()
    >>> len(jobs), jobs[0], min(job.length for job in jobs), max(job.length for job in jobs)
    (3387, Job(submit=19, length=106), 8, 179)
    """
    generator = np.random.default_rng(0)
    days = np.arange("2020-01-01", "2021-01-01", dtype="datetime64[D]")
    workdays = np.flatnonzero(np.is_busday(days))
    per_day = np.zeros(len(days), dtype=np.int64)
    per_day[workdays] = generator.multinomial(JOBS, np.full(len(workdays), 1 / len(workdays)))
    submits = [
        48 * day + slot
        for day, count in enumerate(per_day)
        for slot in np.sort(generator.choice(np.arange(18, 34), size=count))  # 9:00 to 16:30
    ]
    lengths = generator.choice(np.arange(8, 180), size=JOBS)  # 4:00 to 89:30
    return [Job(int(submit), int(length)) for submit, length in zip(submits, lengths, strict=True)]


def slots_to_next_workday(end: np.datetime64) -> int:
    """The allowed delay, in slots, of a job that would end at a given time.

    >>> def late(end):
    ...     return slots_to_next_workday(np.datetime64(end))
    >>> late("2020-01-03T17:00"), late("2020-01-03T17:30")  # Friday
    (0, 31)
    >>> late("2020-01-04T12:00"), late("2020-01-05T09:00")  # Saturday, Sunday
    (90, 48)
    >>> late("2020-01-06T08:30")  # Monday
    1
    """
    day = end.astype("datetime64[D]")
    minute = int((end - day) / np.timedelta64(1, "m"))
    weekday = int(day.astype(np.int64) + 3) % 7  # the epoch was a Thursday
    if weekday == 5:
        return (2 * 1440 + 540 - minute) // 30
    # A Friday evening is due on Saturday at 9 h, as in their code.
    if weekday == 6 or minute > 17 * 60:
        return (1440 + 540 - minute) // 30
    return max(540 - minute, 0) // 30


def emitted(
    jobs: list[Job], signal: Signal, late: list[int], forecasts: NDArray[np.float64], peculiarities: bool
) -> tuple[float, float, float]:
    """Sum of the intensity over the slots of the jobs: unshifted, shifted, and shifted with interruption.

    `late` is the allowed delay of each job in slots; `forecasts` has a row per seed, over which the last two are means.

    >>> signal = Signal(
    ...     np.arange("2020-01-01T00:00", "2020-01-01T02:30", 30, dtype="datetime64[m]"),
    ...     np.array([9.0, 1.0, 5.0, 1.0, 0.0]),
    ... )
    >>> emitted([Job(0, 2)], signal, [2], signal.g_per_kwh[None], peculiarities=False)
    (10.0, 6.0, 2.0)
    >>> emitted([Job(0, 2)], signal, [2], signal.g_per_kwh[None], peculiarities=True)
    (6.0, 1.0, 2.0)
    """
    extra = 1 if peculiarities else 0
    true, forecast = _prefix(signal.g_per_kwh[None])[0], _prefix(forecasts)
    unshifted = in_one_piece = interrupted = 0.0
    for (submit, length), slack in zip(jobs, late, strict=True):
        starts = np.arange(submit, submit + slack + extra + 1)
        near = starts[: 1 + extra]
        unshifted += float((true[near + length] - true[near]).min())
        best = starts[np.argmin(forecast[:, starts + length] - forecast[:, starts], axis=1)]
        in_one_piece += float((true[best + length] - true[best]).mean())
        window = slice(submit, submit + length + slack + extra)
        forecast_window, true_window = forecasts[:, window], signal.g_per_kwh[window]
        if peculiarities:
            worst = np.partition(forecast_window, length - 1, axis=1)[:, length - 1]
            interrupted += float(((forecast_window <= worst[:, None]) @ true_window).mean())
        else:
            chosen = np.argsort(forecast_window, axis=1, kind="stable")[:, :length]
            interrupted += float(true_window[chosen].sum(axis=1).mean())
    return unshifted, in_one_piece, interrupted


def results(sources: Sources, report_progress: Callable[[str], None]) -> dict[str, Any]:
    """Avoided per cent and emitted tonnes by country, with and without the peculiarities."""
    jobs = random_jobs()
    output: dict[str, Any] = {}
    for country, name in COUNTRIES.items():
        report_progress(f"{country}, {len(jobs):,} jobs, {len(SEEDS)} forecasts")
        signal = _read(sources, name)
        late = [slots_to_next_workday(signal.time[job.submit + job.length]) for job in jobs]
        mean = signal.g_per_kwh.mean()
        noise = [np.random.default_rng(seed).normal(0, NOISE * mean, len(signal.g_per_kwh)) for seed in SEEDS]
        forecasts = signal.g_per_kwh + np.array(noise)
        output[country] = {}
        for variant, peculiarities in (("theirs", True), ("without", False)):
            sums = emitted(jobs, signal, late, forecasts, peculiarities)
            tonnes = [total * SLOT_H * POWER_W / 1e9 for total in sums]
            avoided = [100 * (1 - total / sums[0]) for total in sums[1:]]
            output[country][variant] = {"emitted_t": tonnes, "avoided_percent": avoided}
    return output


def text(output: dict[str, Any]) -> str:
    """Format the results as a table."""
    rows = []
    for country, published in PUBLISHED.items():
        with_peculiarities, without = output[country]["theirs"], output[country]["without"]
        cells = [f"{results_of_variant['emitted_t'][0]:.2f}" for results_of_variant in (with_peculiarities, without)]
        rows.append([f"{country} when submitted", "-", "-", "-", cells[0], "-", cells[1]])
        for kind_number, kind in enumerate(KINDS):
            ours = with_peculiarities["avoided_percent"][kind_number]
            rows.append(
                [
                    f"{country} {kind}",
                    f"{published[kind_number]:.2f}",
                    f"{ours:.2f}",
                    f"{ours - published[kind_number]:+.3f}",
                    f"{with_peculiarities['emitted_t'][kind_number + 1]:.2f}",
                    f"{without['avoided_percent'][kind_number]:.2f}",
                    f"{without['emitted_t'][kind_number + 1]:.2f}",
                ]
            )
    heads = ["", "avoided, %: published", "here", "difference", "t CO2e", "without oddities, %", "t CO2e"]
    return "\n\n".join(
        [
            "Let's wait awhile, Scenario II: emissions avoided by waiting until the next workday at most,\n"
            f"{JOBS:,} jobs in 2020, forecasts with {100 * NOISE:g} % noise, mean of {len(SEEDS)}",
            table(heads, rows),
        ]
    )


def _prefix(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sums up to each slot, along the rows."""
    return np.concatenate([np.zeros((len(rows), 1)), np.cumsum(rows, axis=1)], axis=1)


def _read(sources: Sources, name: str) -> Signal:
    path = sources.file(f"carbon/lets_wait_awhile/{name}", "it is in the repository dos-group/lets-wait-awhile")
    kind = np.dtype([("time", "datetime64[s]"), ("value", "f8")])
    try:
        rows = np.loadtxt(path, delimiter=",", skiprows=1, dtype=kind)
    except (OSError, EOFError, ValueError) as error:
        raise InputError(f"{path} cannot be read as times and intensities ({error}); download it again") from None
    minute = rows["time"].astype(np.int64) // 60
    half_hours = rows[(rows["time"] >= np.datetime64("2020-01-01")) & (minute % 30 == 0)]
    if len(half_hours) < 17_900:  # the last job may end a week into 2021
        raise InputError(
            f"{path} has {len(half_hours):,} half hours from 2020 on, fewer than the jobs need; download it again"
        )
    return Signal(half_hours["time"].astype("datetime64[m]"), half_hours["value"])
