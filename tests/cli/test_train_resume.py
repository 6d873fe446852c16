"""kilowait train --algo cma-es: killed and resumed."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

TRACE = "lublin:1200:32:0.95:7"
SMALL = ("--population", "6", "--windows", "4", "--window", "100")


def words(out, generations="40"):
    return [str(word) for word in ("train", TRACE, *SMALL, "--generations", generations, "--out", out)]


def test_killed_by_the_system_and_gone_on_with_it_comes_to_the_same_agent(kilowait, tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert kilowait(*words(whole)).status == 0
    state = tmp_path / "killed.training" / "search.json"
    process = subprocess.Popen(
        [sys.executable, "-m", "kilowait.cli", *words(killed)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        until = time.monotonic() + 120
        while not (state.exists() and json.loads(state.read_text())["state"]["history"]):
            assert process.poll() is None and time.monotonic() < until, process.stderr.read()
            time.sleep(0.01)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    assert process.returncode == -signal.SIGKILL and not killed.exists()
    assert 0 < len(json.loads(state.read_text())["state"]["history"]) < 40
    assert "--resume, or start again with --force" in kilowait(*words(killed)).error()
    said = kilowait(*words(killed), "--resume")
    assert "resuming the training" in said.err and "40 of 40" in said.err
    assert (killed / "agent.json").read_bytes() == (whole / "agent.json").read_bytes()
    assert (killed / "results.json").read_bytes() == (whole / "results.json").read_bytes()
    again = kilowait(*words(killed), "--resume")  # one that is finished is judged and written again
    assert again.status == 0 and (killed / "agent.json").read_bytes() == (whole / "agent.json").read_bytes()
    assert "more --generations and --resume" in again.out


@pytest.mark.parametrize("more", [(), ("--power", "taurus"), ("--cluster", "gpu-mixed")])
def test_what_is_not_there_is_not_gone_on_with(kilowait, tmp_path, more):
    trace = () if "gpu-mixed" in more else (TRACE,)
    said = kilowait("train", *trace, *more, "--out", tmp_path / "x", "--resume").error()
    assert "contains no training to resume; start one without --resume" in said and not list(
        tmp_path.iterdir()
    )


def test_another_log_is_refused(kilowait, tmp_path):
    out = tmp_path / "x"
    assert kilowait(*words(out, "1")).status == 0
    kept = (out / "agent.json").read_bytes()
    other = [word.replace(":7", ":8") for word in words(out, "1")]
    said = kilowait(*other, "--resume")
    assert said.status == 2 and "was started with training jobs 720" in said.err.splitlines()[-1]
    assert "begun with seed 0, and this is 5" in kilowait(*words(out, "1"), "--resume", "--seed", "5").err
    assert (out / "agent.json").read_bytes() == kept
