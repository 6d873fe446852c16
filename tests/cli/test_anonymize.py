"""kilowait traces anonymize, as a site would use it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import kilowait as kw
from kilowait.traces.anonymize import PseudonymKey

USERS = "ann bob cid dan eve".split()
SACCT = (
    "JobID|JobName|User|Account|Partition|Submit|Start|End|Timelimit|NNodes|State|WorkDir|Comment\n"
    + "".join(
        f"{700 + number}|{user}_thesis|{user}|chem|batch|2024-06-0{1 + number // 5}T09:0{number % 5}:00|"
        f"2024-06-0{1 + number // 5}T10:00:00|2024-06-0{1 + number // 5}T11:00:00|02:00:00|{4 if number < 9 else 64}|"
        f"COMPLETED|/home/{user}/thesis|for {user}\n"
        for number, user in enumerate(USERS * 2)
    )
)
"""Ten jobs of five users, all alike but for the last, which is larger."""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a dump, and a folder to publish from; one works in it."""
    (tmp_path / "sacct.txt").write_text(SACCT)
    (tmp_path / "public").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_looking_first(kilowait, site):
    said = kilowait("traces", "anonymize", "sacct.txt", "--quasi-identifiers", "nodes,queue")
    assert said.status == 0
    assert "user           hashed with a secret key: 5 pseudonyms" in said.out
    assert (
        "name           dropped" in said.out and "queue          kept, check these names: batch" in said.out
    )
    assert "about the log  dropped: source, ledger" in said.out
    assert "comments, work directories, names of nodes" in said.out
    assert "jobs below 5   1 of 10 (10.0 %)" in said.out
    assert "unique users   1 of 5 (20.0 %) have a job in a class of their own" in said.out
    assert "nothing written" in said.out and sorted(os.listdir()) == ["public", "sacct.txt"]


@pytest.mark.parametrize("name", ["log.swf.gz", "log.parquet", "log.csv"])
def test_publishing(kilowait, site, name):
    call = ("traces", "anonymize", "sacct.txt", "--out", f"public/{name}", "--key", "site.key")
    said = kilowait(*call, "--new-key", "--shift", "random")
    assert said.status == 0 and f"10 jobs written to public/{name}\n" in said.out
    assert (site / "site.key").stat().st_mode & 0o777 == 0o600
    key = PseudonymKey.read("site.key")
    assert key.secret.hex() not in said.out + said.err
    assert str(int(key.shift_s())) not in said.out + said.err
    back, log = kw.read_trace(f"public/{name}"), kw.read_trace("sacct.txt")
    assert back["job_id"].tolist() == list(range(1, 11)) and back["nodes"].tolist() == log["nodes"].tolist()
    assert (back["submit_s"] - log["submit_s"] == key.shift_s()).all()
    assert "name" not in back and len(set(back["user"].tolist())) == 5
    written = (site / "public" / name).read_bytes()
    again = kilowait(*call, "--shift", "random")
    assert again.status == 0 and (site / "public" / name).read_bytes() == written
    if name == "log.csv":
        assert "plan.json" in said.out
        done = json.loads((site / "public" / "log.csv.plan.json").read_text())["anonymized"]
        assert done["hashed with a secret key"] == "user, account"
        text = "".join(path.read_text() for path in (site / "public").iterdir())
        assert not [
            word for word in (*USERS, "thesis", "chem", "sacct") if f"{word}_" in text or f"/{word}" in text
        ]


def test_enforcing_and_strictness(kilowait, site):
    call = (
        "traces",
        "anonymize",
        "sacct.txt",
        "--out",
        "public/log.csv",
        "--quasi-identifiers",
        "nodes,queue",
        "--key",
        "site.key",
    )
    refused = kilowait(*call, "--fail-below-k", "--new-key")
    assert refused.status == 2 and "no coarsening helps" in refused.out
    assert "error: 1 of 10 jobs are in 1 classes of fewer than 5 users; coarsen" in refused.err
    assert sorted(os.listdir()) == ["public", "sacct.txt"] and not os.listdir("public")
    said = kilowait(*call, "--fail-below-k", "--enforce", "--new-key")
    assert said.status == 0 and "suppressed     1 job: all below 5" in said.out
    assert len(kw.read_trace("public/log.csv")) == 9
    assert kilowait(*call, "--fail-below-k", "--k", 1).status == 0
    assert kilowait(*call, "--fail-below-k", "--coarsen", "nodes=64").status == 0


def test_as_json(kilowait, site):
    found = kilowait(
        "traces", "anonymize", "sacct.txt", "--json", "--quasi-identifiers", "nodes", "--hash", "queue"
    ).json()
    assert found["columns"]["queue"] == "hashed with a secret key" and found["out"] is None
    assert found["check"]["jobs_below"] == 1 and found["check"]["counted_in"] == "users"
    assert found["smallest"] == [{"known": ["64"], "jobs": 1, "people": 1}]


def test_logs_without_users_and_without_dates(kilowait, swf, tmp_path):
    said = kilowait(
        "traces", "anonymize", "lublin:50:8:0.9:1", "--drop", "user", "--shift", "8d", "--hash", "qos"
    )
    assert "the log has no dates to shift" in said.err and "not in this log: qos" in said.err
    rows = "".join(f"{n},{n * 60},60,4\n" for n in range(1, 7))
    (tmp_path / "bare.csv").write_text(f"job_id,submit_s,runtime_s,nodes\n{rows}")
    said = kilowait("traces", "anonymize", tmp_path / "bare.csv")
    assert said.status == 0 and "unique jobs   0 of 6 (0.0 %) are alone in their class" in said.out
    assert "the log has no users, so classes count jobs" in said.err
    said = kilowait("traces", "anonymize", swf, "--shift", "8d")
    assert "the shift is not a number of whole weeks" in said.err


def test_what_is_wrong(kilowait, site):
    def error(*words: object) -> str:
        return kilowait("traces", "anonymize", "sacct.txt", *words).error()

    out = ("--out", "public/log.csv")
    assert "pseudonyms need a key; name its file with --key" in error(*out)
    assert "there is no key file site.key; create one with --new-key" in error(*out, "--key", "site.key")
    assert "is inside" in error(*out, "--key", "public/site.key", "--new-key")
    assert "is inside" in error("--out", "log.csv", "--key", "site.key", "--new-key")
    (site / "short.key").write_text("abcd\n")
    (site / "short.key").chmod(0o600)
    assert "key file short.key: the key has 2 bytes" in error(*out, "--key", "short.key")
    (site / "short.key").chmod(0o644)
    assert "chmod 600 short.key" in error(*out, "--key", "short.key")
    assert "did you mean 'runtime_s'" in error("--coarsen", "runtimes=10s")
    assert "did you mean 'queue'" in error("--hash", "queu")
    assert "did you mean 'weekday'" in error("--quasi-identifiers", "weekdays")
    assert "k is 0" in error("--k", 0)
    assert "not a span of time" in error("--shift", "later")
    assert "suffix" in error("--out", "public/log.doc", "--key", "new.key", "--new-key")
    assert "none of the 10 jobs is in a class of 9 users" in error("--k", 9, "--enforce")
    assert "would be overwritten" in error(
        "--out", "sacct.txt", "--key", "../site.key", "--new-key", "--to", "csv"
    )
    assert sorted(os.listdir()) == ["public", "sacct.txt", "short.key"] and not os.listdir("public")
    (site / "nothing.txt").write_text("")
    assert "empty" in kilowait("traces", "anonymize", "nothing.txt").error()


def test_explained(kilowait):
    said = kilowait("traces", "anonymize", "--help")
    assert "--new-key" in said.out and "Without --out nothing is written" in said.out
    assert "anonymize" in kilowait("traces", "--help").out
