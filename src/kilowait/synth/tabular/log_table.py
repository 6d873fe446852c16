"""Conversion of a log to a table for tabular models, and of rows back to jobs.

A row is a job with its temporal context: the hour and weekday of the previous job, the time since then, whether the
previous job is of the same user, and whether the user repeats the previous request. Columns are chosen so that a small
error in one does not invalidate another: run times are shares of the request, where there are requests; energy is power
per node; an account is the first, second ... of its user; and gaps outside bursts are in rescaled time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from kilowait.files.array_file import StoredArrays
from kilowait.jobs.columns import MAX_TIME_S
from kilowait.synth.log_schema import (
    DAY_S,
    LIMITS,
    TIME_COLUMNS,
    Bools,
    Columns,
    Floats,
    Ints,
    LogSchema,
    StoredRecord,
    stored,
)
from kilowait.synth.tabular.job_order import HOURS_PER_WEEK, MAX_BURST_GAP_S, WeeklyIntensity, fit_weekly_intensity

REQUEST_COLUMNS = ("account", "queue", "gpus", "nodes", "estimate_s")
"""Columns of the request, as far as a log has them."""
CONTEXT_COLUMNS = ("hour", "weekday", "gap_s", "again", "repeats", "user")
"""Columns of the temporal context. `hour` and `weekday`: submission of the previous job; `gap_s`: time since then;
`again`: 1 where that is of the same user; `repeats`: 1 where the user's previous job has the same request."""
CATEGORICAL_COLUMNS = ("hour", "weekday", "again", "repeats", "user", "account", "queue", "status")
"""Categorical columns; the others are numeric."""
KEPT = 20_000
"""Maximum number of stored values of a column, evenly spaced by rank."""


@dataclass(frozen=True)
class LogTable(StoredRecord):
    """Parameters of the conversion between a log and its table."""

    pace: Floats = stored("floats", HOURS_PER_WEEK, minimum=1e-9, maximum=HOURS_PER_WEEK)
    """Intensity of each hour of the week; 1 on average."""
    whole: Bools = stored("flags", 1)
    """One value: whether submission times are whole seconds."""
    runtimes: Floats = stored("floats", None, minimum=0, maximum=MAX_TIME_S, least=1, ascending=True)
    """Run times, ascending."""
    accounts: Ints = stored("whole", None, minimum=0, maximum="highest_account")
    """Accounts of each user, concatenated; most used first."""
    account_ends: Ints = stored("whole", "users", minimum=1, maximum="accounts.0", ascending=True)
    """End index of each user's accounts; empty where there are no users or no accounts."""

    @property
    def intensity(self) -> WeeklyIntensity:
        """The log's weekly intensity."""
        return WeeklyIntensity(self.pace)

    def table(self, rows: Columns, schema: LogSchema) -> dict[str, Floats]:
        """The table of a log's rows, one row for each job but the first; NaN for an unknown power."""
        rows = dict(rows)
        if schema.exact_requests:
            del rows["estimate_s"]
        submit = rows["submit_s"]
        unix_s = submit + schema.zero_s
        same_user, gap_s = _same_user(rows), np.diff(submit)
        table: Columns = {
            "hour": unix_s[:-1] // 3600 % 24,
            "weekday": unix_s[:-1] // DAY_S % 7,
            "gap_s": np.where(
                same_user & (gap_s <= MAX_BURST_GAP_S), gap_s, np.diff(self.intensity.rescaled_s(unix_s))
            ),
        }
        if "user" in rows:
            table["again"] = same_user
        table["repeats"] = _repeats(rows)[1:]
        if len(self.account_ends):
            rows["account"] = self._ranks(rows["user"], rows["account"])
        table |= {name: rows[name][1:] for name in ("user", *REQUEST_COLUMNS, "status") if name in rows}
        runtime = rows["runtime_s"][1:]
        if schema.exact_requests:
            table["runtime_s"] = runtime
        else:
            table["used"] = runtime / np.maximum(rows["estimate_s"][1:], 1.0)
        if "energy_j" in rows:
            table["power_w"] = rows["energy_j"][1:] / np.maximum(rows["nodes"][1:] * runtime, 1e-9)
        return {name: column.astype(np.float64) for name, column in table.items()}

    def jobs(self, table: dict[str, Floats], schema: LogSchema) -> Columns:
        """The columns of jobs, without submission times, from rows of the table."""
        jobs: Columns = {
            name: table[name].astype(np.int64)
            for name in ("user", *REQUEST_COLUMNS, "status")
            if name in schema.columns and name != "estimate_s"
        }
        if len(self.account_ends):
            first = np.concatenate(([0], self.account_ends))[jobs["user"]]
            jobs["account"] = self.accounts[np.minimum(first + jobs["account"], self.account_ends[jobs["user"]] - 1)]
        if schema.exact_requests:
            jobs["estimate_s"] = jobs["runtime_s"] = table["runtime_s"]
        else:
            jobs["estimate_s"] = table["estimate_s"]
            wanted = table["used"] * np.maximum(table["estimate_s"], 1.0)
            jobs["runtime_s"] = nearest(wanted, self.runtimes)
        if "energy_j" in schema.columns:
            jobs["energy_j"] = table["power_w"] * jobs["nodes"] * jobs["runtime_s"]
        return {name: jobs[name] for name in schema.columns}

    def _ranks(self, user: Ints, account: Ints) -> Ints:
        """Index of each job's account among its user's accounts."""
        owner = np.repeat(np.arange(len(self.account_ends)), np.diff(self.account_ends, prepend=0))
        key_base = int(max(self.accounts.max(), account.max())) + 1
        keys = owner * key_base + self.accounts
        order = np.argsort(keys, kind="stable")
        index = order[np.searchsorted(keys, user * key_base + account, sorter=order)]
        ranks: Ints = index - np.concatenate(([0], self.account_ends))[user]
        return ranks

    @classmethod
    def restored(cls, state: StoredArrays, schema: LogSchema) -> Self:
        """Restore the table of a log from `state`."""
        has_accounts = "user" in schema.numbered and "account" in schema.numbered
        users = schema.numbered["user"] if has_accounts else 0
        table = cls.read(state, users=users, highest_account=schema.numbered["account"] - 1 if has_accounts else 0)
        if abs(float(table.pace.mean()) - 1) > 1e-6:
            raise state.refuse("pace", f"has the mean {float(table.pace.mean()):g}; it must be 1")
        ends = table.account_ends
        if (np.diff(ends, prepend=0) < 1).any() or len(table.accounts) != (ends[-1] if users else 0):
            raise state.refuse("account_ends", "does not divide the accounts among the users")
        return table


def value_limits(schema: LogSchema) -> dict[str, tuple[float, float, bool]]:
    """Columns of the table of a log in order: least and greatest value, and whether values are whole numbers."""
    limits: dict[str, tuple[float, float, bool]] = {
        "hour": (0, 23, True),
        "weekday": (0, 6, True),
        "gap_s": (0, max(schema.span_s, 1.0) * HOURS_PER_WEEK, False),
    }
    if "user" in schema.columns:
        limits["again"] = (0, 1, True)
    limits["repeats"] = (0, 1, True)
    for name in ("user", *REQUEST_COLUMNS, "status"):
        if name in schema.columns and not (name == "estimate_s" and schema.exact_requests):
            low, high = LIMITS[name]
            high = schema.numbered[name] - 1 if name in schema.numbered else high
            limits[name] = (0 if name in schema.numbered else low, high, name not in TIME_COLUMNS)
    limits["runtime_s" if schema.exact_requests else "used"] = (0, MAX_TIME_S, False)
    if "energy_j" in schema.columns:
        limits["power_w"] = (0, MAX_TIME_S * 1e18, False)
    return limits


def fit_log_table(rows: Columns, schema: LogSchema) -> LogTable:
    """Fit the table conversion to a log."""
    submit = rows["submit_s"]
    burst_starts_s = submit[np.concatenate(([True], ~_same_user(rows)))] + schema.zero_s
    unix_s = submit + schema.zero_s
    accounts = ends = np.empty(0, np.int64)
    if "user" in rows and "account" in rows:
        pairs, jobs = np.unique(np.stack([rows["user"], rows["account"]]), axis=1, return_counts=True)
        accounts = pairs[1][np.lexsort((-jobs, pairs[0]))]
        ends = np.cumsum(np.bincount(pairs[0]))
    return LogTable(
        fit_weekly_intensity(burst_starts_s, (float(unix_s[0]), float(unix_s[-1]))).pace,
        np.array([bool((submit == np.round(submit)).all())]),
        rank_subsample(np.unique(rows["runtime_s"])),
        accounts,
        ends,
    )


def request_keys(rows: Columns) -> Ints:
    """Integer key of each job's request; jobs with equal requests have equal keys.

    >>> request_keys({"nodes": np.array([4, 1, 4]), "estimate_s": np.array([60.0, 60.0, 60.0])}).tolist()
    [1, 0, 1]
    """
    requests = np.stack([rows[name].astype(np.float64) for name in REQUEST_COLUMNS if name in rows], axis=1)
    return np.unique(requests, axis=0, return_inverse=True)[1].ravel().astype(np.int64)


def _same_user(rows: Columns) -> Bools:
    """Whether each job but the first has the same user as the previous one; false where there are no users."""
    if "user" not in rows:
        return np.zeros(len(rows["submit_s"]) - 1, np.bool_)
    again: Bools = rows["user"][1:] == rows["user"][:-1]
    return again


def _repeats(rows: Columns) -> Bools:
    """Whether each job repeats the request of its user's previous job."""
    request = request_keys(rows)
    user = rows["user"] if "user" in rows else np.zeros(len(request), np.int64)
    order = np.argsort(user, kind="stable")
    same = (np.diff(user[order]) == 0) & (np.diff(request[order]) == 0)
    repeats = np.zeros(len(user), np.bool_)
    repeats[order[1:][same]] = True
    return repeats


def rank_subsample(ascending: Floats) -> Floats:
    """All of some ascending values, or `KEPT` of them."""
    count = len(ascending)
    chosen: Floats = ascending[np.linspace(0, count - 1, min(count, KEPT)).round().astype(np.int64)]
    return chosen


def nearest(numbers: npt.NDArray[Any], known: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The nearest of ascending known values (at least one) to each number.

    >>> nearest(np.array([0.0, 29.0, 31.0, 99.0]), np.array([1.0, 60.0])).tolist()
    [1.0, 1.0, 60.0, 60.0]
    """
    place = np.searchsorted(known, numbers)
    low, high = known[np.maximum(place - 1, 0)], known[np.minimum(place, len(known) - 1)]
    found: npt.NDArray[Any] = np.where(numbers - low <= high - numbers, low, high)
    return found
