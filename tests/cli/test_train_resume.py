"""kilowait train --algo cma-es: killed and resumed."""

import os
import signal
import subprocess
import sys
import time

import pytest

from kilowait.agents.evolution.search import FORMAT

TRACE = "lublin:1200:32:0.95:7"
SMALL = ("--population", "6", "--windows", "4", "--window", "100")


def train_args(out, generations="40"):
    return [str(word) for word in ("train", TRACE, *SMALL, "--generations", generations, "--out", out)]


def test_resumed_training_gives_the_same_agent(kilowait, tmp_path):
    uninterrupted, killed = tmp_path / "whole", tmp_path / "killed"
    assert kilowait(*train_args(uninterrupted)).status == 0
    state = tmp_path / "killed.training" / "search.json"
    process = subprocess.Popen(
        [sys.executable, "-m", "kilowait.cli", *train_args(killed)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        deadline = time.monotonic() + 120
        while not (state.exists() and FORMAT.read(state)["history"]):
            assert process.poll() is None and time.monotonic() < deadline, process.stderr.read()
            time.sleep(0.01)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    assert process.returncode == -signal.SIGKILL and not killed.exists()
    assert 0 < len(FORMAT.read(state)["history"]) < 40
    refused = kilowait(*train_args(killed))
    takeover, error = refused.err.splitlines()
    assert takeover.startswith(f"took over the lock of {killed} from user ") and f"process {process.pid}" in takeover
    assert refused.status == 2 and "--resume, or start again with --force" in error
    result = kilowait(*train_args(killed), "--resume")
    assert "resuming the training" in result.err and "40 of 40" in result.err
    assert (killed / "agent.json").read_bytes() == (uninterrupted / "agent.json").read_bytes()
    assert (killed / "results.json").read_bytes() == (uninterrupted / "results.json").read_bytes()
    again = kilowait(*train_args(killed), "--resume")  # a finished training is evaluated and written again
    assert again.status == 0 and (killed / "agent.json").read_bytes() == (uninterrupted / "agent.json").read_bytes()
    assert "more --generations and --resume" in again.out


@pytest.mark.parametrize("options", [(), ("--power", "taurus"), ("--cluster", "gpu-mixed")])
def test_resume_without_a_checkpoint(kilowait, tmp_path, options):
    trace = () if "gpu-mixed" in options else (TRACE,)
    message = kilowait("train", *trace, *options, "--out", tmp_path / "x", "--resume").error()
    assert "contains no training to resume; start one without --resume" in message and not list(tmp_path.iterdir())


def test_resume_with_another_log_or_seed_is_refused(kilowait, tmp_path):
    out = tmp_path / "x"
    assert kilowait(*train_args(out, "1")).status == 0
    before = (out / "agent.json").read_bytes()
    other_log = [arg.replace(":7", ":8") for arg in train_args(out, "1")]
    result = kilowait(*other_log, "--resume")
    assert result.status == 2 and "was started with training jobs 720" in result.err.splitlines()[-1]
    assert "started with seed 0, not 5" in kilowait(*train_args(out, "1"), "--resume", "--seed", "5").err
    assert (out / "agent.json").read_bytes() == before
