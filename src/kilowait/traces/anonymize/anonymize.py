"""Anonymization of a job log by a plan; pseudonyms by keyed hashing (HMAC-SHA256), and the secret key and its file."""

from __future__ import annotations

import hmac
import json
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from kilowait.errors import InputError
from kilowait.files import atomic_file, create_parents
from kilowait.jobs import JobTable
from kilowait.jobs.columns import LABEL_COLUMNS, ColumnArray
from kilowait.traces.anonymize.k_anonymity import (
    AnonymityCheck,
    SuggestedRule,
    check_k_anonymity,
    choose_quasi_identifiers,
    suggest_rules,
)
from kilowait.traces.anonymize.plan import COLUMN_RULES, HEADER_KEYS, RANDOM_SHIFT, AnonymizationPlan, coarsen
from kilowait.traces.write import write_trace, written_format

FORMATS_WITH_PLAN = ("swf", "parquet")
"""Formats that can store the plan; with other formats it is written to a separate file."""


@dataclass(frozen=True)
class AnonymizedLog:
    """An anonymized log with its plan and k-anonymity check."""

    jobs: JobTable
    plan: AnonymizationPlan
    check: AnonymityCheck
    """Check of all jobs, before suppression."""
    suggestions: tuple[SuggestedRule, ...]
    suppressed: int = 0
    """Number of jobs left out because they were in classes below k."""
    dependencies_removed: int = 0
    """Number of jobs whose dependency (`after_id`) was removed because it referred to a suppressed job."""


def anonymize(
    jobs: JobTable,
    key: PseudonymKey,
    plan: AnonymizationPlan,
    *,
    k: int = 5,
    quasi: Sequence[str] | None = None,
    enforce: bool = False,
    numbers: bool = False,
) -> AnonymizedLog:
    """Apply the plan to the jobs and check the k-anonymity of the result.

    `quasi` are the quasi-identifiers: columns, or ``hour``, ``day``, ``week``, ``hour_of_day``, ``weekday`` of the
    submission; `enforce` leaves out the jobs in classes of fewer than `k` users; `numbers` replaces users, accounts and
    names by numbers instead of words, as SWF requires. The rows are sorted by submission.

    >>> from kilowait.traces.anonymize import PseudonymKey, make_plan
    >>> jobs = JobTable(
    ...     job_id=[70, 80],
    ...     submit_s=[0, 5],
    ...     runtime_s=[60, 60],
    ...     nodes=[4, 4],
    ...     user=[0, 1],
    ...     labels={"user": ("ann", "bob")},
    ... )
    >>> result = anonymize(jobs, PseudonymKey(bytes(range(32))), make_plan(jobs), k=2)
    >>> result.jobs["job_id"].tolist(), result.jobs.labels["user"], result.check.jobs_below
    ([1, 2], ('user_10e6c4bc7d58', 'user_75be4d780dbe'), 0)
    """
    if not len(jobs):
        raise InputError("the log has no jobs to publish")
    jobs = jobs.sorted()
    users = jobs.column("user")
    quasi_identifiers = choose_quasi_identifiers(plan, jobs, quasi)
    dropped: dict[str, None] = {name: None for name, action in plan.actions.items() if action == "drop"}
    result = _shifted(coarsen(jobs.with_columns(**dropped), plan.steps), key, plan)
    check = check_k_anonymity(result, users, k, quasi_identifiers)
    remedies = suggest_rules(result, users, check, plan) if check.jobs_below else ()
    dependencies_removed = 0
    if enforce and check.jobs_below:
        if check.below.all():
            raise InputError(
                f"none of the {check.jobs:,} jobs is in a class of {k} {check.counted_in} or more, so --drop-below-k "
                "would remove all jobs; coarsen columns or use fewer --quasi-identifiers"
            )
        result, dependencies_removed = _suppressed(result, check.below)
    columns, labels = _renamed(_renumbered(result), key, plan, numbers)
    left_out = check.jobs_below if enforce else 0
    meta = _meta(result, plan, check, enforce)
    return AnonymizedLog(
        JobTable(labels=labels, meta=meta, **columns), plan, check, remedies, left_out, dependencies_removed
    )


def check_output_path(source: str | PathLike[str], out: str | PathLike[str]) -> None:
    """Raise an InputError if the output would overwrite the source log."""
    if os.path.realpath(source) == os.path.realpath(out):
        raise InputError(f"{out} is the source log and would be overwritten; write to another file")


def publish(result: AnonymizedLog, path: str | PathLike[str], *, format: str | None = None) -> Path | None:
    """Write the log with `write_trace`, and the plan next to it if the format cannot store it.

    Returns the path of the plan's own file, or None.
    """
    output_format = written_format(path, format)
    if output_format == "batsim-platform":
        raise InputError("a Batsim platform describes a machine and has no jobs; write swf, csv, parquet or batsim")
    if output_format in FORMATS_WITH_PLAN:
        write_trace(result.jobs, path, format=output_format)
        return None
    plan_path = Path(f"{path}.plan.json")
    if plan_path.is_dir():
        raise InputError(f"cannot write {plan_path}: it is a folder; name another file with --out")
    try:
        with atomic_file(plan_path) as temporary:
            temporary.write_text(f"{json.dumps(dict(result.jobs.meta), indent=1, default=str)}\n", encoding="utf-8")
            write_trace(result.jobs, path, format=output_format)
    except OSError as problem:
        raise InputError(f"cannot write {plan_path}: {problem.strerror or problem}") from None
    return plan_path


@contextmanager
def saved_key(key: PseudonymKey, path: str | PathLike[str] | None) -> Iterator[None]:
    """Save a new key for the block that publishes a log with it; the key is removed if nothing is published.

    None: the key exists already. Otherwise the key is on the disk before the log, which is useless without it.
    """
    if path is None:
        yield
        return
    key.save(path)
    try:
        yield
    except BaseException:
        Path(path).unlink(missing_ok=True)
        raise


def _shifted(jobs: JobTable, key: PseudonymKey, plan: AnonymizationPlan) -> JobTable:
    """The jobs with shifted dates.

    If the log has its own time origin (`unix_start_s`), the origin is shifted: shifted submissions with an unchanged
    origin would reveal the shift, because logs begin at their origin.
    """
    if plan.shift is None or not plan.dated:
        return jobs
    shift = key.shift_s() if plan.shift == RANDOM_SHIFT else float(plan.shift)
    zero = float(jobs.meta["unix_start_s"])
    if zero + float(jobs["submit_s"].min()) + shift < 0:
        raise InputError("the shift would move the first job before 1970; shift by less, or forward")
    if zero != 0:
        shifted_zero = zero + shift
        meta = {**jobs.meta, "unix_start_s": int(shifted_zero) if shifted_zero == int(shifted_zero) else shifted_zero}
        return JobTable(labels=jobs.labels, meta=meta, **{name: jobs[name] for name in jobs.columns})
    return jobs.with_columns(**{name: jobs[name] + shift for name in jobs.columns if COLUMN_RULES[name].clock})


def _suppressed(jobs: JobTable, rows: ColumnArray) -> tuple[JobTable, int]:
    """The jobs without these rows; jobs that depended on one of them keep only their submission time."""
    kept = jobs[~rows]
    if "after_id" not in kept:
        return kept, 0
    after = kept["after_id"]
    lost = (after >= 0) & ~np.isin(after, kept["job_id"])
    columns: dict[str, Any] = {"after_id": np.where(lost, -1, after)}
    if "think_s" in kept:
        columns["think_s"] = np.where(lost, 0.0, kept["think_s"])
    return kept.with_columns(**columns), int(lost.sum())


def _renumbered(jobs: JobTable) -> JobTable:
    """Job numbers from 1 in the order of the table, which is that of submission."""
    number = np.arange(1, len(jobs) + 1)
    columns: dict[str, Any] = {"job_id": number}
    if "after_id" in jobs:
        after, ids = jobs["after_id"], jobs["job_id"]
        by_id = np.argsort(ids)
        place = by_id[np.minimum(np.searchsorted(ids[by_id], after), len(ids) - 1)]
        columns["after_id"] = np.where((after >= 0) & (ids[place] == after), number[place], -1)
    return jobs.with_columns(**columns)


def _renamed(
    jobs: JobTable, key: PseudonymKey, plan: AnonymizationPlan, numbers: bool
) -> tuple[dict[str, ColumnArray], dict[str, tuple[str, ...]]]:
    """Columns and labels with pseudonyms according to the plan; unused names are left out."""
    columns = {name: jobs[name] for name in jobs.columns}
    labels: dict[str, tuple[str, ...]] = {}
    for name in LABEL_COLUMNS:
        if name not in jobs:
            continue
        codes = jobs[name]
        used = np.unique(codes[codes >= 0])
        names = jobs.labels.get(name)
        texts = [str(code) if names is None else names[code] for code in used.tolist()]
        if plan.actions[name] == "keep":
            if names is None:
                continue
            new = np.arange(len(used))
            labels[name] = tuple(texts)
        elif numbers and name in ("user", "account", "name"):
            new = np.array(pseudonym_numbers(key, name, texts), np.int64)
        else:
            result = pseudonyms(key, name, texts)
            labels[name] = tuple(sorted(result))  # the original order could reveal information about the names
            new = np.searchsorted(np.array(labels[name]), np.array(result))
        columns[name] = np.full(len(codes), -1)
        known = codes >= 0
        columns[name][known] = new[np.searchsorted(used, codes[known])]
    return columns, labels


def _meta(jobs: JobTable, plan: AnonymizationPlan, check: AnonymityCheck, enforce: bool) -> dict[str, Any]:
    """The kept fields of the table's meta, and a description of the plan."""
    meta = {name: value for name, value in jobs.meta.items() if plan.meta.get(name) == "keep"}
    if "header" in meta:
        header = meta["header"] if isinstance(meta["header"], dict) else {}
        meta["header"] = {name: header[name] for name in HEADER_KEYS if name in header}
    columns_by_action: dict[str, list[str]] = {}
    for name, action_text in plan.words().items():
        columns_by_action.setdefault(action_text, []).append(name)
    meta["anonymized"] = {action_text: ", ".join(names) for action_text, names in columns_by_action.items()}
    if enforce:
        meta["anonymized"]["suppressed"] = (
            f"{check.jobs_below} jobs in classes of fewer than {check.k} {check.counted_in}, with equal "
            f"{', '.join(check.quasi)}"
        )
    return meta


# -- pseudonyms ------------------------------------------------------------------------------------


KEY_BYTES = 32
"""Bytes of a key. A password is not enough: if it is guessed, all user names can be tried."""
DIGITS = 12
"""Hexadecimal digits of a pseudonym (48 bits): 100,000 names have a collision for one in 56,000 keys."""
LARGEST_NUMBER = 2**31 - 2
"""Pseudonyms in SWF are numbers from 1 to this, because many SWF readers use 32-bit integers."""
MAX_WEEKS = 520
"""Largest shift derived from the key, in weeks."""
_KEY_EXISTS = (
    "the key file {} already exists, and logs published with it could no longer be joined if it were replaced; omit "
    "--new-key to use it, or name another file"
)
_HEX = re.compile(r"[0-9a-fA-F]*")


@dataclass(frozen=True)
class PseudonymKey:
    """A secret key of at least 32 bytes; the same key gives the same pseudonyms.

    >>> key = PseudonymKey(bytes(range(32)))
    >>> key.digest("user", "ann") == key.digest("account", "ann"), key
    (False, PseudonymKey())
    """

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.secret) < KEY_BYTES:
            raise InputError(
                f"the key has {len(self.secret)} bytes, but needs at least {KEY_BYTES}; create one with --new-key"
            )

    @classmethod
    def fresh(cls) -> PseudonymKey:
        """A new key from the system's random generator; a key generated from a seed would not be secret."""
        return cls(secrets.token_bytes(KEY_BYTES))

    @classmethod
    def read(cls, path: str | PathLike[str]) -> PseudonymKey:
        """Read a key file of hexadecimal digits. A file that is readable by all users of the system is refused."""
        path = Path(path)
        try:
            mode = path.stat().st_mode
            text = path.read_text("ascii", "replace").strip()
        except FileNotFoundError:
            raise InputError(f"there is no key file {path}; create one with --new-key") from None
        except OSError as problem:
            raise InputError(f"cannot read the key file {path}: {problem.strerror or problem}") from None
        if mode & 0o007:
            raise InputError(
                f"the key file {path} is readable by all users of this system (mode {mode & 0o777:04o}); "
                f"restrict it: chmod 600 {path}"
            )
        if not _HEX.fullmatch(text) or len(text) % 2:
            raise InputError(
                f"the key file {path} does not contain a key of {2 * KEY_BYTES} hexadecimal digits; create one with "
                "--new-key"
            )
        try:
            return cls(bytes.fromhex(text))
        except InputError as problem:
            raise InputError(f"key file {path}: {problem}") from None

    def save(self, path: str | PathLike[str]) -> None:
        """Write the key to a new file that only its owner may read; an existing file is never replaced."""
        try:
            create_parents(path)
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise InputError(_KEY_EXISTS.format(path)) from None
        except OSError as problem:
            raise InputError(f"cannot write the key file {path}: {problem.strerror or problem}") from None
        try:
            with os.fdopen(handle, "w", encoding="ascii") as file:
                file.write(f"{self.secret.hex()}\n")
        except OSError as problem:
            Path(path).unlink(missing_ok=True)
            raise InputError(f"cannot write the key file {path}: {problem.strerror or problem}") from None

    def digest(self, domain: str, text: str) -> bytes:
        """HMAC-SHA256 of a text. Domains are separate: a user and an account of the same name get different digests."""
        message = b"\0".join((b"kilowait/1", domain.encode(), text.encode("utf-8", "surrogatepass")))
        return hmac.digest(self.secret, message, "sha256")

    def shift_s(self) -> float:
        """Time shift derived from the key: 1 to 520 whole weeks, in seconds.

        >>> PseudonymKey(bytes(range(32))).shift_s() % (7 * 86400)
        0.0
        """
        weeks = 1 + int.from_bytes(self.digest("shift", "")[:8], "big") % MAX_WEEKS
        return weeks * 7 * 86400.0


def key_for(path: str | PathLike[str] | None, out: str | PathLike[str] | None, *, new: bool = False) -> PseudonymKey:
    """The key for publishing `out`: read from the file, or a new one that is not yet saved (see `PseudonymKey.save`).

    Without `out` nothing is published, and a temporary key is used.
    """
    if path is None:
        if out is not None or new:
            raise InputError(
                "pseudonyms need a key; name its file with --key-file, outside the folder of the published log"
            )
        return PseudonymKey.fresh()
    if out is not None:
        check_key_location(path, out)
    if not new:
        return PseudonymKey.read(path)
    if Path(path).exists():
        raise InputError(_KEY_EXISTS.format(path))
    if out is None:
        raise InputError(f"a new key {path} needs a log to publish; name it with --out")
    return PseudonymKey.fresh()


def check_key_location(key: str | PathLike[str], out: str | PathLike[str]) -> None:
    """Raise an InputError if the key file is inside the folder of the published log or its subfolders."""
    folder = Path(os.path.realpath(out)).parent
    if folder in (
        *Path(os.path.realpath(key)).parents,
        *Path(os.path.abspath(key)).parents,
    ):  # symbolic links inside the folder are refused too
        raise InputError(
            f"the key file {key} is inside {folder}, the folder of the published log, and could be published with it; "
            "keep the key elsewhere, or write to a separate folder: --out public/log.parquet"
        )


def pseudonyms(key: PseudonymKey, column: str, names: Sequence[str], *, digits: int = DIGITS) -> list[str]:
    """Pseudonym of every name: the column and the first `digits` hexadecimal digits of its keyed hash.

    >>> pseudonyms(PseudonymKey(bytes(range(32))), "user", ["ann", "bob"])
    ['user_75be4d780dbe', 'user_10e6c4bc7d58']
    """
    results = [f"{column}_{key.digest(column, name).hex()[:digits]}" for name in names]
    _refuse_collisions(column, names, results, f"{digits} hexadecimal digits", "create another key")
    return results


def pseudonym_numbers(key: PseudonymKey, column: str, names: Sequence[str], *, most: int = LARGEST_NUMBER) -> list[int]:
    """Number from 1 to `most` for every name, from the same keyed hash as `pseudonyms`.

    >>> pseudonym_numbers(PseudonymKey(bytes(range(32))), "user", ["ann", "bob"])
    [1749315719, 296354601]
    """
    results = [1 + int.from_bytes(key.digest(column, name)[:16], "big") % most for name in names]
    _refuse_collisions(column, names, results, f"numbers up to {most:,}", "write Parquet or CSV, where they are longer")
    return results


def _refuse_collisions(column: str, names: Sequence[str], results: Sequence[Any], size: str, remedy: str) -> None:
    first: dict[Any, str] = {}
    for name, pseudonym in zip(names, results, strict=True):
        other = first.setdefault(pseudonym, name)
        if other != name:
            raise InputError(
                f"{column} {other!r} and {name!r} both become {pseudonym}: {size} are too few here; {remedy}"
            )
