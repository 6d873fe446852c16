"""kilowait traces anonymize."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import kilowait as kw
from kilowait.traces.anonymize import PseudonymKey

USERS = "ann bob cid dan eve".split()
SACCT = "JobID|JobName|User|Account|Partition|Submit|Start|End|Timelimit|NNodes|State|WorkDir|Comment\n" + "".join(
    f"{700 + number}|{user}_thesis|{user}|chem|batch|2024-06-0{1 + number // 5}T09:0{number % 5}:00|"
    f"2024-06-0{1 + number // 5}T10:00:00|2024-06-0{1 + number // 5}T11:00:00|02:00:00|{4 if number < 9 else 64}|"
    f"COMPLETED|/home/{user}/thesis|for {user}\n"
    for number, user in enumerate(USERS * 2)
)
"""Ten jobs of five users; the last one is larger than the others."""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: a sacct dump and a folder for published files."""
    (tmp_path / "sacct.txt").write_text(SACCT)
    (tmp_path / "public").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_without_out_nothing_is_written(kilowait, site):
    result = kilowait("traces", "anonymize", "sacct.txt", "--quasi-identifiers", "nodes,queue")
    assert result.status == 0
    assert "user           hashed with a secret key: 5 pseudonyms" in result.out
    assert "name           dropped" in result.out and "queue          kept, check these names: batch" in result.out
    assert "about the log  dropped: source, ledger" in result.out
    assert "comments, work directories, names of nodes" in result.out
    assert "jobs below 5   1 of 10 (10.0 %)" in result.out
    assert "unique users   1 of 5 (20.0 %) have a job in a class of their own" in result.out
    assert "nothing written" in result.out and sorted(os.listdir()) == ["public", "sacct.txt"]


def test_missing_folders_are_created_and_a_failed_command_can_be_repeated(kilowait, site):
    (site / "occupied").write_text("")
    call = ("traces", "anonymize", "sacct.txt", "--key-file", "secret/site.key", "--new-key", "--out")
    failed = kilowait(*call, "occupied/log.parquet")
    assert (failed.status, failed.err) == (
        2,
        f"error: cannot write occupied/log.parquet: {site}/occupied is a file, not a folder\n",
    )
    assert not (site / "secret" / "site.key").exists()
    assert kilowait(*call, "public/june/log.parquet").status == 0
    assert len(kw.read_trace(site / "public" / "june" / "log.parquet")) == 10
    assert len(PseudonymKey.read(site / "secret" / "site.key").secret) == 32


@pytest.mark.parametrize("name", ["log.swf.gz", "log.parquet", "log.csv"])
def test_published_files_are_anonymized_and_reproducible(kilowait, site, name):
    call = ("traces", "anonymize", "sacct.txt", "--out", f"public/{name}", "--key-file", "site.key")
    result = kilowait(*call, "--new-key", "--shift-dates", "random")
    assert result.status == 0 and f"10 jobs written to public/{name}\n" in result.out
    assert (site / "site.key").stat().st_mode & 0o777 == 0o600
    key = PseudonymKey.read("site.key")
    assert key.secret.hex() not in result.out + result.err
    assert str(int(key.shift_s())) not in result.out + result.err
    published, log = kw.read_trace(f"public/{name}"), kw.read_trace("sacct.txt")
    assert published["job_id"].tolist() == list(range(1, 11)) and published["nodes"].tolist() == log["nodes"].tolist()
    assert (published["submit_s"] - log["submit_s"] == key.shift_s()).all()
    assert "name" not in published and len(set(published["user"].tolist())) == 5
    written = (site / "public" / name).read_bytes()
    again = kilowait(*call, "--shift-dates", "random")
    assert again.status == 0 and (site / "public" / name).read_bytes() == written
    if name == "log.csv":
        assert "plan.json" in result.out
        record = json.loads((site / "public" / "log.csv.plan.json").read_text())["anonymized"]
        assert record["hashed with a secret key"] == "user, account"
        text = "".join(path.read_text() for path in (site / "public").iterdir())
        assert not [word for word in (*USERS, "thesis", "chem", "sacct") if f"{word}_" in text or f"/{word}" in text]


def test_strict_rejects_and_enforce_suppresses_small_classes(kilowait, site):
    call = (
        "traces",
        "anonymize",
        "sacct.txt",
        "--out",
        "public/log.csv",
        "--quasi-identifiers",
        "nodes,queue",
        "--key-file",
        "site.key",
    )
    refused = kilowait(*call, "--fail-below-k", "--new-key")
    assert refused.status == 2 and "no coarsening helps" in refused.out
    assert "error: 1 of 10 jobs are in 1 classes of fewer than 5 users; coarsen" in refused.err
    assert sorted(os.listdir()) == ["public", "sacct.txt"] and not os.listdir("public")
    result = kilowait(*call, "--fail-below-k", "--drop-below-k", "--new-key")
    assert result.status == 0 and "suppressed     1 job: all below 5" in result.out
    assert len(kw.read_trace("public/log.csv")) == 9
    assert kilowait(*call, "--fail-below-k", "--k", 1).status == 0
    assert kilowait(*call, "--fail-below-k", "--coarsen", "nodes=64").status == 0


def test_json(kilowait, site):
    report = kilowait(
        "traces", "anonymize", "sacct.txt", "--json", "--quasi-identifiers", "nodes", "--hash", "queue"
    ).json()
    assert report["columns"]["queue"] == "hashed with a secret key" and report["out"] is None
    assert report["check"]["jobs_below"] == 1 and report["check"]["counted_in"] == "users"
    assert report["smallest"] == [{"known": ["64"], "jobs": 1, "people": 1}]


def test_logs_without_users_and_without_dates(kilowait, swf, tmp_path):
    result = kilowait(
        "traces", "anonymize", "lublin:50:8:0.9:1", "--drop", "user", "--shift-dates", "8d", "--hash", "qos"
    )
    assert "the log has no dates to shift" in result.err and "not in this log: qos" in result.err
    rows = "".join(f"{n},{n * 60},60,4\n" for n in range(1, 7))
    (tmp_path / "bare.csv").write_text(f"job_id,submit_s,runtime_s,nodes\n{rows}")
    result = kilowait("traces", "anonymize", tmp_path / "bare.csv")
    assert result.status == 0 and "unique jobs   0 of 6 (0.0 %) are alone in their class" in result.out
    assert "the log has no users, so classes count jobs" in result.err
    result = kilowait("traces", "anonymize", swf, "--shift-dates", "8d")
    assert "the shift is not a number of whole weeks" in result.err


def test_error_messages(kilowait, site):
    def error(*args: object) -> str:
        return kilowait("traces", "anonymize", "sacct.txt", *args).error()

    out = ("--out", "public/log.csv")
    assert "pseudonyms need a key; name its file with --key-file" in error(*out)
    assert "there is no key file site.key; create one with --new-key" in error(*out, "--key-file", "site.key")
    assert "is inside" in error(*out, "--key-file", "public/site.key", "--new-key")
    assert "is inside" in error("--out", "log.csv", "--key-file", "site.key", "--new-key")
    (site / "short.key").write_text("abcd\n")
    (site / "short.key").chmod(0o600)
    assert "key file short.key: the key has 2 bytes" in error(*out, "--key-file", "short.key")
    (site / "short.key").chmod(0o644)
    assert "chmod 600 short.key" in error(*out, "--key-file", "short.key")
    assert "did you mean 'runtime_s'" in error("--coarsen", "runtimes=10s")
    assert "did you mean 'queue'" in error("--hash", "queu")
    assert "did you mean 'weekday'" in error("--quasi-identifiers", "weekdays")
    assert "k is 0" in error("--k", 0)
    assert "not a span of time" in error("--shift-dates", "later")
    assert "suffix" in error("--out", "public/log.doc", "--key-file", "new.key", "--new-key")
    assert "none of the 10 jobs is in a class of 9 users" in error("--k", 9, "--drop-below-k")
    assert "would be overwritten" in error(
        "--out", "sacct.txt", "--key-file", "../site.key", "--new-key", "--to", "csv"
    )
    assert sorted(os.listdir()) == ["public", "sacct.txt", "short.key"] and not os.listdir("public")
    (site / "nothing.txt").write_text("")
    assert "empty" in kilowait("traces", "anonymize", "nothing.txt").error()


def test_help_text(kilowait):
    result = kilowait("traces", "anonymize", "--help")
    assert "--new-key" in result.out and "Without --out nothing is written" in result.out
    assert "anonymize" in kilowait("traces", "--help").out
