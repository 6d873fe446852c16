"""A log as a table that a table model can learn, and its rows as jobs again.

A row is a job and what there is to know of its place in time: the hour and weekday in which the job before it came,
the time since then, whether that was of the same user, and whether the user asked again for what he asked for last.
Run times are shares of the request, where there are requests, and energy is the power of a node, so that what the
network gets a little wrong in one column does not make nonsense of another.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kilowait.synth.facts import DAY_S, Columns, LogFacts

__all__ = ["ASKED", "KINDS", "PLACE", "Floats", "Ints", "asked_of", "jobs_of", "table_of"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

ASKED = ("account", "queue", "gpus", "nodes", "estimate_s")
"""What a user asks for, as far as a log has it."""
PLACE = ("hour", "weekday", "gap_s", "again", "repeats")
"""Columns of a job's place in time. `hour` and `weekday`: when the job before was submitted; `gap_s`: since then;
`again`: 1 where that was of the same user; `repeats`: 1 where the user's job before asked for the same."""
KINDS = ("hour", "weekday", "again", "repeats", "user", "account", "queue", "status")
"""Columns whose numbers are names; the others are numbers."""


def table_of(rows: Columns, facts: LogFacts) -> dict[str, Floats]:
    """The table of a log, one row for each job but the first; NaN for an unknown power."""
    submit = rows["submit_s"]
    user = rows["user"] if "user" in rows else np.zeros(len(submit), np.int64)
    if facts.exact_requests:
        rows = {name: column for name, column in rows.items() if name != "estimate_s"}
    hour, weekday = clock_of(submit[:-1], facts)
    table: Columns = {
        "hour": hour,
        "weekday": weekday,
        "gap_s": np.diff(submit),
        "again": user[1:] == user[:-1],
        "repeats": _repeats(user, asked_of(rows))[1:],
    }
    if "user" not in rows:
        del table["again"]
    for name in ("user", *ASKED, "status"):
        if name in rows:
            table[name] = rows[name][1:]
    runtime = rows["runtime_s"][1:]
    if facts.exact_requests:
        table["runtime_s"] = runtime
    else:
        table["used"] = runtime / np.maximum(rows["estimate_s"][1:], 1.0)
    if "energy_j" in rows:
        table["power_w"] = rows["energy_j"][1:] / np.maximum(rows["nodes"][1:] * runtime, 1e-9)
    return {name: column.astype(np.float64) for name, column in table.items()}


def jobs_of(table: dict[str, Floats], facts: LogFacts, *, whole_s: bool) -> Columns:
    """The columns of jobs, but for their submission, from rows of the table.

    Args:
        table: rows.
        facts: of the log.
        whole_s: the log's run times are whole seconds.
    """
    jobs: Columns = {}
    if facts.exact_requests:
        runtime = request = table["runtime_s"]
    else:
        request = table["estimate_s"]
        runtime = table["used"] * np.maximum(request, 1.0)
    jobs["runtime_s"] = np.round(runtime) if whole_s else runtime
    jobs["estimate_s"] = request
    for name in ("user", *ASKED, "status"):
        if name in facts.columns and name != "estimate_s":
            jobs[name] = table[name].astype(np.int64)
    if "energy_j" in facts.columns:
        jobs["energy_j"] = table["power_w"] * jobs["nodes"] * jobs["runtime_s"]
    return {name: jobs[name] for name in facts.columns}


def clock_of(submit_s: Floats, facts: LogFacts) -> tuple[Ints, Ints]:
    """Hour of the day and day of the week."""
    moment = submit_s + facts.zero_s
    return (moment // 3600 % 24).astype(np.int64), (moment // DAY_S % 7).astype(np.int64)


def asked_of(rows: Columns) -> Ints:
    """One number for all that a job asks for; the same for jobs that ask for the same.

    >>> asked_of({"nodes": np.array([4, 1, 4]), "estimate_s": np.array([60.0, 60.0, 60.0])}).tolist()
    [1, 0, 1]
    """
    asked = np.stack([rows[name].astype(np.float64) for name in ASKED if name in rows], axis=1)
    return np.unique(asked, axis=0, return_inverse=True)[1].ravel().astype(np.int64)


def _repeats(user: Ints, asked: Ints) -> npt.NDArray[np.bool_]:
    """Whether each job asks for what its user's job before asked for."""
    order = np.argsort(user, kind="stable")
    same = (np.diff(user[order]) == 0) & (np.diff(asked[order]) == 0)
    repeats = np.zeros(len(user), np.bool_)
    repeats[order[1:][same]] = True
    return repeats
