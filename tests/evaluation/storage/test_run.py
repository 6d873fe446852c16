"""Run folders: atomic writes, identical logs after loading, errors of broken folders."""

from __future__ import annotations

import json

import numpy as np
import pytest

import kilowait as kw
from kilowait.errors import InputError
from kilowait.evaluation import by_class, gpu_metrics, metrics, timeline
from kilowait.evaluation.storage import comparison_of_runs, load_run, plain_json, save_folder, save_run
from kilowait.jobs import ExecutionLog
from tests.evaluation.gpu.example_logs import random_run


def example_run_log(**settings: object) -> ExecutionLog:
    """A log with two groups, an outage, unsorted rows, cancelled, rejected, dependent and killed jobs."""
    jobs = kw.JobTable(
        job_id=[50, 7, 9, 12, 3],
        submit_s=[30, 0, 10, 20, 5],
        runtime_s=[100, 50, 60, 70, 10],
        estimate_s=[60, 50, 60, 70, 10],
        nodes=[4, 6, 2, 100, 6],
        queue=[0, 1, -1, 1, 0],
        cancel_s=[np.inf, np.inf, np.inf, np.inf, 6],
        after_id=[-1, -1, 7, -1, -1],
        think_s=[0, 0, 0.1, 0, 0],
        labels={"queue": ("short", "wide")},
        meta={"max_procs": 10, "ledger": {"rows_read": 5, "jobs": 5, "folded": 0, "entries": []}},
    )
    cluster = kw.Cluster(groups=(kw.NodeGroup("a", 6), kw.NodeGroup("b", 4)), outages=(kw.Outage("b", 2, 40.5, 80),))
    return kw.simulate(jobs, cluster, "sjf", "easy", at_limit="kill", on_oversized="drop", **settings)  # type: ignore[arg-type]


def saved(path, log=None, **settings):
    log = example_run_log() if log is None else log
    results = {"metrics": metrics(log)}
    return save_run(path, log, scenario={"trace": "synthetic"}, results=results, manifest={"date": "today"}, **settings)


def test_round_trip(tmp_path):
    log = example_run_log()
    run = load_run(saved(tmp_path / "x" / "run", log))
    assert {int(outcome) for outcome in log.job_outcome} == {1, 2, 3, 4}
    assert metrics(run.log) == metrics(log) == run.results["metrics"]
    assert by_class(run.log, "queue") == by_class(log, "queue")
    for name in ("job", "start_s", "end_s", "group", "level", "outcome", "eligible_s", "job_outcome"):
        ours, theirs = getattr(run.log, name), getattr(log, name)
        assert ours.dtype == theirs.dtype, name
        np.testing.assert_array_equal(ours, theirs, name)
    np.testing.assert_array_equal(run.log.capacity_s, log.capacity_s)
    np.testing.assert_array_equal(run.log.capacity, log.capacity)
    np.testing.assert_array_equal(timeline(run.log).capacity_nodes, timeline(log).capacity_nodes)
    assert (run.log.groups, dict(run.log.run)) == (log.groups, dict(log.run))
    assert run.log.jobs_table.labels == log.jobs_table.labels
    assert run.log.jobs_table.meta == log.jobs_table.meta
    assert run.manifest["date"] == "today" and run.scenario == {"trace": "synthetic"}


def test_node_states_round_trip(tmp_path):
    jobs = kw.lublin(50, 8, load=0.5, seed=1)
    power_controls = kw.PowerControls(sleep={"nodes": kw.SleepPolicy(60, 5, 30)})
    log = kw.simulate(jobs, kw.Cluster.from_nodes(8), "fcfs", "easy", power_controls=power_controls)
    run = load_run(saved(tmp_path / "run", log))
    assert len(log.states) > 20
    for name in ("time_s", "group", "shutting_down", "asleep", "waking"):
        ours, theirs = getattr(run.log.states, name), getattr(log.states, name)
        np.testing.assert_array_equal(ours, theirs)
        assert ours.dtype == theirs.dtype
    assert load_run(saved(tmp_path / "other")).log.states is None


def test_log_without_started_jobs(tmp_path):
    jobs = kw.JobTable(job_id=[1], submit_s=[0], runtime_s=[5], nodes=[9])
    log = kw.simulate(jobs, kw.Cluster.from_nodes(4), on_oversized="drop", backfill="none")
    run = load_run(saved(tmp_path / "run", log))
    assert len(run.log) == 0 and run.results["metrics"]["mean_wait_s"] is None


@pytest.mark.parametrize("name", ["scenario.toml", "jobs.parquet", "log.parquet", "records.parquet", "results.json"])
def test_lost_and_damaged_files_are_named(tmp_path, name):
    folder = saved(tmp_path / "run")
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(whole[:-3] + b"xxx")
    with pytest.raises(InputError, match=f"{name} was modified"):
        load_run(folder)
    (folder / name).unlink()
    with pytest.raises(InputError, match=f"incomplete: {name}"):
        load_run(folder)


def test_other_folders_are_refused(tmp_path):
    with pytest.raises(InputError, match="there is no run folder"):
        load_run(tmp_path / "none")
    with pytest.raises(InputError, match="no manifest.json"):
        load_run(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(InputError, match="manifest.json is damaged: Expecting property name"):
        load_run(tmp_path)
    (tmp_path / "manifest.json").write_text("[]")
    with pytest.raises(InputError, match="does not contain a JSON object"):
        load_run(tmp_path)
    (tmp_path / "manifest.json").write_text(json.dumps({"kind": "run", "layout": 99}))
    with pytest.raises(InputError, match="layout 99"):
        load_run(tmp_path)
    # Layout 1 had the nodes of a machine where layout 2 has its nodes or cores.
    (tmp_path / "manifest.json").write_text(json.dumps({"kind": "run", "layout": 1, "files": {}}))
    with pytest.raises(InputError, match="layout 1; this version of kilowait reads layout 2: write it again"):
        load_run(tmp_path)


def test_files_of_two_runs_are_not_mixed(tmp_path):
    first = saved(tmp_path / "one")
    jobs = kw.lublin(5, 4)
    second = saved(tmp_path / "two", kw.simulate(jobs, kw.Cluster.from_nodes(4), backfill="none"))
    (first / "jobs.parquet").write_bytes((second / "jobs.parquet").read_bytes())
    manifest = json.loads((first / "manifest.json").read_text())
    manifest["files"]["jobs.parquet"] = json.loads((second / "manifest.json").read_text())["files"]["jobs.parquet"]
    (first / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="different jobs"):
        load_run(first)


def test_failed_writes_leave_no_files(tmp_path):
    def interrupted(folder):
        (folder / "half").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save_folder(tmp_path / "run", interrupted, kind="run")
    assert list(tmp_path.iterdir()) == []
    folder = saved(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        save_folder(folder, interrupted, kind="run", force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert load_run(folder).manifest["date"] == "today"


def test_full_disk_is_an_error(tmp_path):
    def full_disk(folder):
        raise OSError(28, "No space left on device")

    with pytest.raises(InputError, match="No space left"):
        save_folder(tmp_path / "run", full_disk, kind="run")
    assert list(tmp_path.iterdir()) == []


def test_empty_folder_is_accepted(tmp_path):
    (tmp_path / "run").mkdir()
    assert load_run(saved(tmp_path / "run")).manifest["kind"] == "run"


def test_plain_json():
    data = {"a": float("nan"), "b": np.float64(1.5), "c": [np.int64(2), float("-inf")], "d": (True, None), 1: "é"}
    assert json.loads(plain_json(data)) == {"a": None, "b": 1.5, "c": [2, None], "d": [True, None], "1": "é"}


PIECES = ("segment", "node", "gpus", "gpu_milli", "count", "work_s", "lost_s", "node_group")


@pytest.mark.parametrize("seed", [0, 1, 5])
def test_allocations_round_trip(tmp_path, seed):
    log, cluster, speeds = random_run(seed)
    run = load_run(saved(tmp_path / "run", log))
    assert len(log.pieces) > 100 and log.pieces.lost_s.sum() >= 0
    for name in PIECES:
        ours, theirs = getattr(run.log.pieces, name), getattr(log.pieces, name)
        assert ours.dtype == theirs.dtype, name
        np.testing.assert_array_equal(ours, theirs, name)
    np.testing.assert_array_equal(run.log.outcome, log.outcome)
    assert metrics(run.log) == metrics(log)
    np.testing.assert_equal(gpu_metrics(run.log, cluster, speeds), gpu_metrics(log, cluster, speeds))
    if seed == 0:  # with the outcomes that occur only on GPU clusters
        assert {5, 1} <= set(log.outcome.tolist())
    assert load_run(saved(tmp_path / "other")).log.pieces is None


def test_comparison_of_runs_on_node_level_clusters(tmp_path):
    log, _, _ = random_run(0)  # its rows are not in the order of submission
    run = load_run(saved(tmp_path / "run", log))
    comparison = comparison_of_runs([run])
    assert comparison.table[0][0]["mean_turnaround_s"] == pytest.approx(metrics(log)["mean_turnaround_s"])
    np.testing.assert_array_equal(comparison.logs(0, 0).pieces.node, log.pieces.node)
