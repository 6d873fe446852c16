"""Anonymized logs: the same jobs with other names and without private fields."""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kilowait as kw
from kilowait.errors import InputError, TraceError
from kilowait.evaluation.breakdown import by_class
from kilowait.jobs import JobTable
from kilowait.traces import read_trace
from kilowait.traces.anonymize import (
    AnonymizedLog,
    PseudonymKey,
    anonymize,
    check_output_path,
    make_plan,
    parse_coarsening,
    parse_shift,
    pseudonyms,
    publish,
    saved_key,
)
from kilowait.traces.anonymize.anonymize import check_key_location, key_for, pseudonym_numbers

KEY, OTHER_KEY = PseudonymKey(bytes(range(32))), PseudonymKey(bytes(range(1, 33)))
WEEK = 7 * 86400.0
SECRETS = (
    "alice",
    "bob",
    "carol",
    "astro",
    "run_alice.sh",
    "secret lab",
    "alice@site.org",
    "alice.swf",
    "queue-of-nobody",
)


def log_of(count: int = 120, seed: int = 3, **meta: Any) -> JobTable:
    """A log that contains every kind of private data."""
    workload = kw.lublin(count, 32, load=0.95, seed=seed)
    rng = np.random.default_rng(seed)
    ids = rng.permutation(count) + 5000
    after = np.full(count, -1)
    after[count // 2] = ids[3]
    return JobTable(
        job_id=ids,
        submit_s=np.floor(workload["submit_s"] / 60) * 60,  # some at the same moment
        runtime_s=workload["runtime_s"],
        estimate_s=workload["runtime_s"] * 1.5 + 60,
        nodes=workload["nodes"],
        user=rng.integers(-1, 3, count),
        account=rng.integers(0, 3, count),
        queue=rng.integers(0, 2, count),
        name=rng.integers(0, 2, count),
        after_id=after,
        think_s=np.where(after >= 0, 7.0, 0.0),
        labels={
            "user": ("alice", "bob", "carol", "dave who is not here"),
            "account": ("alice", "astro", "bio"),
            "queue": ("fast", "slow", "queue-of-nobody"),
            "name": ("run_alice.sh", "x"),
        },
        meta={
            "max_procs": 32, "source": "alice.swf", "ledger": {"entries": ["alice"]},
            "header": {"Installation": "secret lab", "Acknowledge": "alice@site.org", "StartTime": "Mon Jan 5 1970"},
            "new_field": "alice", **meta,
        },
    )  # fmt: skip


def anonymized(jobs: JobTable, key: PseudonymKey = KEY, **options: Any) -> AnonymizedLog:
    plan_options = {
        name: options.pop(name) for name in ("hashed", "keep", "drop", "coarsen", "shift") if name in options
    }
    return anonymize(jobs, key, make_plan(jobs, **plan_options), **options)


@pytest.mark.parametrize("name", ["log.parquet", "log.csv", "log.swf"])
def test_published_log_simulates_like_the_original(tmp_path: Path, name: str) -> None:
    """Simulating the published log gives the results of the original log, except for user names."""
    jobs = log_of().sorted()
    published = anonymized(jobs, numbers=name == "log.swf")
    publish(published, tmp_path / name)
    read_back = read_trace(tmp_path / name)
    assert read_back["job_id"].tolist() == list(range(1, len(jobs) + 1))
    for column in ("submit_s", "runtime_s", "estimate_s", "nodes", "think_s"):
        assert np.array_equal(read_back[column], jobs[column]), column
    after = int(np.flatnonzero(jobs["after_id"] >= 0)[0])
    assert read_back["after_id"][after] == 1 + np.flatnonzero(jobs["job_id"] == jobs["after_id"][after])[0]
    cluster = kw.Cluster.from_nodes(32)
    logs = [kw.simulate(table, cluster, policy="fcfs", backfill="easy") for table in (jobs, read_back)]
    assert np.array_equal(logs[0].jobs()["wait_s"], logs[1].jobs()["wait_s"])
    assert logs[0].jobs()["wait_s"].max() > 0
    rows = [by_class(log, "user") for log in logs]
    assert [vars_without_label(row) for row in rows[0]] == [vars_without_label(row) for row in rows[1]]
    assert kw.fairness(logs[0]) == kw.fairness(logs[1])
    text = (tmp_path / name).read_bytes().decode("utf-8", "replace")
    assert not [word for word in SECRETS if word in text]


def vars_without_label(row: Any) -> tuple[Any, ...]:
    return tuple(getattr(row, name) for name in ("jobs", "mean_wait_s", "mean_bsld", "max_wait_s", "allocated_h"))


def test_private_fields_are_removed() -> None:
    published = anonymized(log_of(), keep=["header"])
    assert set(published.jobs.meta) == {"max_procs", "header", "anonymized"}
    assert set(published.jobs.meta["header"]) == {
        "Installation",
        "Acknowledge",
    }  # requested with keep; its dates are removed
    assert set(published.jobs.labels) == {"user", "account", "queue"} and "name" not in published.jobs
    assert published.jobs.labels["queue"] == ("fast", "slow")  # labels without jobs are removed
    assert len(published.jobs.labels["user"]) == len(published.jobs.labels["account"]) == 3
    record = published.jobs.meta["anonymized"]
    assert record["hashed with a secret key"] == "user, account" and record["dropped"] == "name"
    assert record["renumbered"] == "job_id, after_id"
    assert KEY.secret.hex() not in json.dumps(dict(published.jobs.meta))


def test_users_and_accounts_of_one_name_get_different_pseudonyms() -> None:
    labels = anonymized(log_of()).jobs.labels
    assert not {word.partition("_")[2] for word in labels["user"]} & {
        word.partition("_")[2] for word in labels["account"]
    }
    assert list(labels["user"]) == sorted(labels["user"])  # not in the order of the original names


def test_unknown_users_stay_unknown() -> None:
    jobs = log_of().sorted()
    for numbers in (False, True):
        column = anonymized(jobs, numbers=numbers).jobs["user"]
        pairs = set(zip(jobs["user"].tolist(), column.tolist(), strict=True))
        assert len(pairs) == 4 and (-1, -1) in pairs
        assert len({new for _, new in pairs}) == 4


def test_pseudonyms_join_files_and_depend_on_the_key() -> None:
    june, july = anonymized(log_of(seed=3)).jobs, anonymized(log_of(seed=4)[:40]).jobs
    assert set(july.labels["user"]) <= set(june.labels["user"])
    assert set(june.labels["user"]) == set(pseudonyms(KEY, "user", ["alice", "bob", "carol"]))
    assert not set(june.labels["user"]) & set(anonymized(log_of(), OTHER_KEY).jobs.labels["user"])
    numbered = [set(anonymized(log_of(seed=s), numbers=True).jobs["user"].tolist()) - {-1} for s in (3, 4)]
    assert numbered[0] == numbered[1]


def test_numeric_and_text_names_of_a_user_are_one_user() -> None:
    """User 7 of an SWF file is user "7" of a table with text labels."""
    numbers = JobTable(job_id=[1], submit_s=[0], runtime_s=[1], nodes=[1], user=[7])
    words = JobTable(job_id=[1], submit_s=[0], runtime_s=[1], nodes=[1], user=[0], labels={"user": ("7",)})
    assert anonymized(numbers).jobs.labels == anonymized(words).jobs.labels


# -- time ----------------------------------------------------------------------------------------


def dates(jobs: JobTable) -> Any:
    return jobs.meta["unix_start_s"] + jobs["submit_s"]


@pytest.mark.parametrize("zero", [0, 800_000_000])
def test_shifts_are_whole_weeks_and_stay_secret(zero: int) -> None:
    """For Unix times and for times relative to the start of the log."""
    jobs = log_of(unix_start_s=zero).sorted()
    start = 1e9 if zero == 0 else 0.0
    jobs = jobs.with_columns(submit_s=jobs["submit_s"] + start, begin_s=jobs["submit_s"] + start + 5)
    published = anonymized(jobs, shift=parse_shift("random")).jobs
    shift_s = dates(published) - dates(jobs)
    assert np.ptp(shift_s) == 0 and shift_s[0] == KEY.shift_s()
    assert (published["begin_s"] - published["submit_s"] == 5).all()
    if zero:
        assert np.array_equal(
            published["submit_s"], jobs["submit_s"]
        )  # otherwise the first submission would reveal the shift
    assert str(int(KEY.shift_s())) not in json.dumps(dict(published.meta["anonymized"]))
    assert published.meta["anonymized"]["kept, dates moved"] == "submit_s, begin_s"
    later = anonymized(jobs[60:], shift=parse_shift("random")).jobs
    assert np.array_equal(dates(later), dates(published)[60:])
    assert anonymized(jobs, OTHER_KEY, shift=parse_shift("random")).jobs.meta != published.meta or zero == 0
    shifted_back = anonymized(jobs, shift=parse_shift("-1w")).jobs
    assert (dates(shifted_back) - dates(jobs) == -WEEK).all()


def test_invalid_shifts() -> None:
    with pytest.raises(InputError, match="would move the first job before 1970; shift by less, or forward"):
        anonymized(log_of(unix_start_s=5), shift=-WEEK)
    undated = anonymized(log_of(), shift=WEEK)
    assert not undated.plan.dated and np.array_equal(undated.jobs["submit_s"], log_of().sorted()["submit_s"])


def test_submissions_rounded_together_keep_their_order() -> None:
    jobs = JobTable(job_id=[9, 2, 5], submit_s=[0, 10, 20], runtime_s=[1, 2, 3], nodes=[1, 1, 1])
    published = anonymized(jobs, coarsen=parse_coarsening("submit_s=1h")).jobs
    assert published.order is None
    assert published["submit_s"].tolist() == [0, 0, 0] and published["runtime_s"].tolist() == [1, 2, 3]


# -- classes -------------------------------------------------------------------------------------


@given(seed=st.integers(0, 50), k=st.integers(1, 3))
def test_after_suppression_no_class_is_below_k(seed: int, k: int) -> None:
    jobs = log_of(60, seed)
    quasi = ["nodes", "queue"]
    published = anonymized(jobs, k=k, quasi=quasi)
    if published.check.below.all():
        with pytest.raises(InputError, match=f"not one of 60 jobs is in a class of {k} users or more"):
            anonymized(jobs, k=k, quasi=quasi, enforce=True)
        return
    suppressed = anonymized(jobs, k=k, quasi=quasi, enforce=True)
    assert len(suppressed.jobs) == 60 - published.check.jobs_below == 60 - suppressed.suppressed
    again = anonymize(suppressed.jobs, OTHER_KEY, make_plan(suppressed.jobs), k=k, quasi=quasi)
    assert again.check.jobs_below == 0
    assert suppressed.jobs["job_id"].tolist() == list(range(1, len(suppressed.jobs) + 1))  # no gaps
    if "after_id" in suppressed.jobs:
        assert set(suppressed.jobs["after_id"].tolist()) <= {-1, *suppressed.jobs["job_id"].tolist()}
    assert f"{published.check.jobs_below} jobs" in suppressed.jobs.meta["anonymized"]["suppressed"]


def test_dependencies_on_suppressed_jobs_are_removed() -> None:
    jobs = JobTable(
        job_id=[1, 2, 3], submit_s=[0, 1, 2], runtime_s=[1, 1, 1], nodes=[9, 1, 1], after_id=[-1, 1, 2],
        think_s=[0, 4, 5],
    )  # fmt: skip
    suppressed = anonymized(jobs, k=2, quasi=["nodes"], enforce=True)
    assert (suppressed.suppressed, suppressed.dependencies_removed) == (1, 1)
    assert suppressed.jobs["after_id"].tolist() == [-1, 1] and suppressed.jobs["think_s"].tolist() == [0, 5]


def test_dropped_users_still_count() -> None:
    assert anonymized(log_of(), drop=["user"]).check.users == 3
    assert anonymized(log_of().with_columns(user=None)).check.counted_in == "jobs"


def test_no_jobs() -> None:
    with pytest.raises(InputError, match="the log has no jobs to publish"):
        anonymized(log_of()[:0])


# -- files ---------------------------------------------------------------------------------------


def test_plan_is_written(tmp_path: Path) -> None:
    published = anonymized(log_of())
    assert publish(published, tmp_path / "log.parquet") is None
    assert read_trace(tmp_path / "log.parquet").meta["anonymized"] == published.jobs.meta["anonymized"]
    assert publish(published, tmp_path / "log.swf") is None
    notes = read_trace(tmp_path / "log.swf").meta["header"]["Note"]
    assert "anonymized; hashed with a secret key: user, account" in notes and "dropped: name" in notes
    for name, form in (("log.csv", None), ("log.json", "batsim")):
        plan_path = publish(published, tmp_path / name, format=form)
        assert plan_path == tmp_path / f"{name}.plan.json"
        assert json.loads(plan_path.read_text())["anonymized"]["dropped"] == "name"


def test_publish_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a Batsim platform describes a machine and has no jobs"):
        publish(anonymized(log_of()), tmp_path / "log.xml")
    with pytest.raises(InputError, match="is the source log and would be overwritten"):
        check_output_path(tmp_path / "a" / ".." / "log.swf", tmp_path / "log.swf")
    (tmp_path / "log.csv.plan.json").mkdir()
    with pytest.raises(InputError, match="cannot write .*plan.json"):
        publish(anonymized(log_of()), tmp_path / "log.csv")
    (tmp_path / "used.csv").mkdir()
    with pytest.raises(TraceError, match="cannot write .*used.csv"):
        publish(anonymized(log_of()), tmp_path / "used.csv")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.csv.plan.json", "used.csv"]


def test_real_log(data_dir: Path, tmp_path: Path) -> None:
    """KTH-SP2 in two halves: users and their overlap are preserved."""
    jobs = read_trace(data_dir / "swf" / "KTH-SP2-1996-2.1-cln.swf.gz")
    halves = []
    for number, part in enumerate((jobs[:14000], jobs[14000:])):
        path = tmp_path / f"{number}.swf.gz"
        publish(anonymized(part, shift=parse_shift("random"), numbers=True), path)
        halves.append(read_trace(path))
    users = [set(half["user"].tolist()) for half in halves]
    before = [set(part["user"].tolist()) for part in (jobs[:14000], jobs[14000:])]
    assert [len(found) for found in users] == [len(found) for found in before]
    assert len(users[0] | users[1]) == 214 and len(users[0] & users[1]) == len(before[0] & before[1])
    assert np.array_equal(np.concatenate([dates(half) for half in halves]), dates(jobs) + KEY.shift_s())


KEY = PseudonymKey(bytes(range(32)))
NAMES = [f"user{number:04}" for number in range(3000)]


def test_key_file_round_trip(tmp_path: Path) -> None:
    key = PseudonymKey.fresh()
    key.save(tmp_path / "site.key")
    assert (tmp_path / "site.key").stat().st_mode & 0o777 == 0o600
    assert PseudonymKey.read(tmp_path / "site.key") == key
    assert len(key.secret) == 32 and PseudonymKey.fresh() != key
    assert key.secret.hex() not in repr(key) and str(key.secret) not in repr(key)


def test_keys_are_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "site.key"
    KEY.save(path)
    with pytest.raises(InputError, match="already exists.*omit --new-key"):
        PseudonymKey.fresh().save(path)
    with pytest.raises(InputError, match="already exists"):
        key_for(path, tmp_path / "public" / "log.csv", new=True)
    assert PseudonymKey.read(path) == KEY


def test_a_new_key_remains_only_if_the_log_is_published(tmp_path: Path) -> None:
    path = tmp_path / "site.key"
    with pytest.raises(TraceError, match="cannot write"), saved_key(KEY, path):
        assert PseudonymKey.read(path) == KEY
        raise TraceError("cannot write the log")
    assert not path.exists()
    with saved_key(KEY, path):
        pass
    with pytest.raises(InputError, match="already exists"), saved_key(PseudonymKey.fresh(), path):
        pass
    with pytest.raises(TraceError, match="cannot write"), saved_key(KEY, None):
        raise TraceError("cannot write the log")
    assert PseudonymKey.read(path) == KEY


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the key has 0 bytes, but needs at least 32"),
        ("00" * 31, "the key has 31 bytes"),
        ("correct horse battery staple", "does not contain a key of 64 hexadecimal digits; create one with --new-key"),
        ("0" * 65, "does not contain a key"),
    ],
)
def test_invalid_keys_are_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "bad.key"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(InputError, match=message):
        PseudonymKey.read(path)


def test_key_file_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no key file .*; create one with --new-key"):
        PseudonymKey.read(tmp_path / "none")
    with pytest.raises(InputError, match="cannot read the key file"):
        PseudonymKey.read(tmp_path)
    KEY.save(tmp_path / "new" / "site.key")
    with pytest.raises(InputError, match="cannot write the key file"):
        KEY.save(tmp_path / "new" / "site.key" / "site.key")
    path = tmp_path / "site.key"
    KEY.save(path)
    path.chmod(0o644)
    with pytest.raises(InputError, match=r"readable by all users of this system \(mode 0644\); restrict it: chmod 600"):
        PseudonymKey.read(path)
    path.chmod(0o640)  # a group of administrators may share one
    assert PseudonymKey.read(path) == KEY


def test_key_in_the_folder_of_the_published_log(tmp_path: Path) -> None:
    (tmp_path / "public" / "deep").mkdir(parents=True)
    out = tmp_path / "public" / "log.csv"
    for location in ("public/site.key", "public/deep/site.key", "public/../public/site.key"):
        with pytest.raises(InputError, match="the folder of the published log.*keep the key elsewhere"):
            check_key_location(tmp_path / location, out)
    KEY.save(tmp_path / "site.key")
    check_key_location(tmp_path / "site.key", out)
    (tmp_path / "public" / "link.key").symlink_to(tmp_path / "site.key")
    with pytest.raises(InputError, match="keep the key elsewhere"):
        check_key_location(tmp_path / "public" / "link.key", out)
    (tmp_path / "elsewhere").symlink_to(tmp_path / "public")
    with pytest.raises(InputError, match="keep the key elsewhere"):
        check_key_location(tmp_path / "elsewhere" / "site.key", out)


def test_key_for_a_publication(tmp_path: Path) -> None:
    out = tmp_path / "public" / "log.csv"
    with pytest.raises(InputError, match="pseudonyms need a key; name its file with --key-file"):
        key_for(None, out)
    with pytest.raises(InputError, match="pseudonyms need a key"):
        key_for(None, None, new=True)
    with pytest.raises(InputError, match="name it with --out"):
        key_for(tmp_path / "site.key", None, new=True)
    key = key_for(tmp_path / "site.key", out, new=True)
    assert not (tmp_path / "site.key").exists()  # nothing is left behind where something else fails
    key.save(tmp_path / "site.key")
    assert key_for(tmp_path / "site.key", out) == key
    assert key_for(None, None) != key


def test_pseudonyms_are_hmac_of_column_and_name() -> None:
    expected = hmac.new(bytes(range(32)), b"kilowait/1\0user\0ann", hashlib.sha256).hexdigest()
    assert pseudonyms(KEY, "user", ["ann"]) == [f"user_{expected[:12]}"]


def test_pseudonyms_depend_on_the_key() -> None:
    pseudonyms_first = pseudonyms(KEY, "user", NAMES)
    assert pseudonyms(PseudonymKey(bytes(range(32))), "user", NAMES[::-1])[::-1] == pseudonyms_first
    other = PseudonymKey(bytes(range(1, 33)))
    assert not set(pseudonyms_first) & set(pseudonyms(other, "user", NAMES))
    assert set(pseudonym_numbers(KEY, "user", NAMES)) != set(pseudonym_numbers(other, "user", NAMES))
    digits = {name.rpartition("_")[2] for name in pseudonyms_first}
    assert not digits & {name.rpartition("_")[2] for name in pseudonyms(KEY, "account", NAMES)}


def test_dictionary_attack_without_the_key_fails() -> None:
    """Hashing all user names without the key reproduces no pseudonym."""
    published = {name.rpartition("_")[2] for name in pseudonyms(KEY, "user", NAMES)}
    guesses = (b"", b"user\0", b"kilowait/1\0user\0")
    for name in NAMES:
        for prefix in guesses:
            message = prefix + name.encode()
            for digest in (
                hashlib.sha256(message).hexdigest(),
                hashlib.md5(message).hexdigest(),
                hmac.new(b"", message, hashlib.sha256).hexdigest(),
                hmac.new(b"kilowait", message, hashlib.sha256).hexdigest(),
            ):
                assert digest[:12] not in published


def test_collisions_are_errors() -> None:
    with pytest.raises(InputError, match=r"user 'user\d+' and 'user\d+' both become user_\w: 1 hexadecimal digits"):
        pseudonyms(KEY, "user", NAMES[:20], digits=1)
    with pytest.raises(InputError, match="both become .*numbers up to 10 are too few here; write Parquet or CSV"):
        pseudonym_numbers(KEY, "user", NAMES[:20], most=10)
    assert len(set(pseudonym_numbers(KEY, "user", NAMES))) == len(NAMES)
    assert all(1 <= number < 2**31 - 1 for number in pseudonym_numbers(KEY, "user", NAMES))


def test_shift_is_derived_from_the_key() -> None:
    shifts = {PseudonymKey(bytes([number]) * 32).shift_s() for number in range(50)}
    assert len(shifts) > 40
    assert all(shift % (7 * 86400) == 0 and 0 < shift <= 520 * 7 * 86400 for shift in shifts)
    assert KEY.shift_s() == PseudonymKey(bytes(range(32))).shift_s()
