"""The synthetic-fidelity benchmark: finished cells are reused and failed cells reported."""

from __future__ import annotations

import json

import numpy as np
import pytest
from benchmarks.reproduce import synthetic_fidelity
from benchmarks.reproduce.__main__ import main
from benchmarks.reproduce.data_paths import Sources

from kilowait.jobs import JobTable
from kilowait.traces import write_trace
from tests.synth.test_generator import log


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A folder with one small log in place of Theta."""
    folder = tmp_path / "data"
    (folder / "swf").mkdir(parents=True)
    jobs = log(400)
    public_jobs = JobTable(
        labels={"queue": jobs.labels["queue"]},
        meta=jobs.meta,
        **{name: jobs[name] for name in "job_id submit_s runtime_s estimate_s nodes user queue status".split()},
    )
    write_trace(public_jobs, folder / "swf" / "small.swf.gz")
    monkeypatch.setattr(synthetic_fidelity, "LOGS", {"Theta": "swf/small.swf.gz"})
    return folder


@pytest.fixture
def cells(monkeypatch):
    """File names of the cells computed in this process."""
    computed = []

    def run_serially(work, calls, processes, say):
        for call in calls:
            computed.append(call[0].file.name)
            say(work(*call))

    monkeypatch.setattr(synthetic_fidelity, "run_parallel", run_serially)
    return computed


def table(data, out, **options):
    return synthetic_fidelity.results(
        Sources.find(str(data)), lambda line: None, ["Theta"], ["bootstrap"], folder=str(out), **options
    )


def test_finished_cells_are_reused(data, cells, tmp_path):
    out = tmp_path / "out"
    first = table(data, out, seeds=(0,))
    assert cells == ["Theta-bootstrap-likeness.json", "Theta-bootstrap-privacy.json"]
    (out / "Theta-bootstrap-privacy.json").unlink()
    second = table(data, out, seeds=(0,))
    assert cells[2:] == ["Theta-bootstrap-privacy.json"]
    assert json.dumps(first["Theta"]["bootstrap"]["likeness"]) == json.dumps(second["Theta"]["bootstrap"]["likeness"])
    table(data, out, seeds=(5,))
    assert len(cells) == 5  # other seeds are other cells
    output = synthetic_fidelity.text(second)
    assert "Theta, shifted by minutes" in output and "Theta, bootstrap" in output
    # The bootstrap copies jobs, which is reported.
    assert second["Theta"]["bootstrap"]["privacy"]["leaks"]["copies"] == 1


def test_failed_cells_are_reported(data, cells, tmp_path, monkeypatch):
    def fail(jobs, model, seeds):
        raise synthetic_fidelity.KilowaitError("no such extra")

    monkeypatch.setattr(synthetic_fidelity, "fidelity_of", fail)
    assert "failed: Theta, bootstrap, likeness: no such extra" in synthetic_fidelity.text(table(data, tmp_path / "out"))


def test_log_without_a_cluster_has_a_gpu_pool():
    jobs = JobTable(job_id=[1, 2], submit_s=[0, 100], runtime_s=[70, 70], nodes=[1, 1], gpus=[1, 8])
    counted = jobs.with_columns(nodes=np.maximum(jobs["gpus"], 1))
    assert synthetic_fidelity.machine_of(counted).nodes == 9  # 630 GPU-seconds in 100 s, 70 % of the time


def test_options_are_checked(capsys):
    with pytest.raises(SystemExit):
        main(["tsafrir", "--models", "copula"])
    assert "--models is only for synthetic-fidelity, not for tsafrir" in capsys.readouterr().err
