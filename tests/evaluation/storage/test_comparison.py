"""Comparison folders: all logs are restored unchanged."""

from __future__ import annotations

import json

import numpy as np
import pytest

import kilowait as kw
from kilowait.errors import InputError
from kilowait.evaluation.comparison import cut_windows
from kilowait.evaluation.storage import (
    comparison_of_runs,
    load_comparison,
    load_run,
    open_folder,
    save_comparison,
    save_folder,
    save_run,
)

CLUSTER = kw.Cluster(groups=(kw.NodeGroup("a", 6), kw.NodeGroup("b", 4)), outages=(kw.Outage("b", 2, 4000.5, 9000),))


def comparisons():
    jobs = kw.lublin(300, 6, load=1.0, seed=1, estimates="rounded")
    random = np.random.default_rng(0)
    after = np.where(random.random(300) < 0.1, np.maximum(np.arange(300) - 3, 1), -1)
    with_dependencies = jobs.with_columns(
        after_id=np.where(after > 0, jobs["job_id"][after], -1), think_s=random.random(300) * 0.3
    )
    return [
        kw.compare(cut_windows(with_dependencies, 3, window_jobs=40, warmup_jobs=20, seed=0), CLUSTER, ["fcfs", "sjf"]),
        kw.compare(jobs, CLUSTER, {"saf": "saf"}, backfill=2, clairvoyant=True, at_limit="kill", trace="two"),
    ]


def saved(path, originals, **settings):
    return save_comparison(
        path, originals, scenario={"x": 1}, results={"traces": []}, manifest={"date": "today"}, **settings
    )


def test_round_trip(tmp_path):
    originals = comparisons()
    loaded = open_folder(saved(tmp_path / "c", originals, cells=["k"]))
    assert loaded.scenario == {"x": 1} and loaded.manifest["date"] == "today" and loaded.cells == ("k",)
    for ours, theirs in zip(loaded.comparisons, originals, strict=True):
        assert ours.policies == theirs.policies and ours.trace == theirs.trace
        assert ours.windows.description == theirs.windows.description
        assert ours.cluster == theirs.cluster
        for policy in range(len(theirs.policies)):
            for window in range(len(theirs.windows)):
                log, original_log = ours.logs(policy, window), theirs.logs(policy, window)
                for name in (
                    "job", "start_s", "end_s", "group", "level", "outcome", "eligible_s", "job_outcome",
                    "capacity_s", "capacity",
                ):  # fmt: skip
                    np.testing.assert_array_equal(getattr(log, name), getattr(original_log, name), name)
                    assert getattr(log, name).dtype == getattr(original_log, name).dtype, name
                assert dict(log.run) == dict(original_log.run)
                assert (log.states is None) == (original_log.states is None)
                if original_log.states is not None:
                    assert len(original_log.states) > 5
                    np.testing.assert_array_equal(log.states.asleep, original_log.states.asleep)
        np.testing.assert_array_equal(ours.values("mean_bsld"), theirs.values("mean_bsld"))


def test_table_of_windows(tmp_path):
    import pyarrow.parquet as pq

    originals = comparisons()
    table = pq.read_table(saved(tmp_path / "c", originals) / "windows.parquet").to_pylist()
    assert len(table) == 2 * 3 + 2
    assert [row["label"] for row in table[::3]][:2] == ["fcfs", "sjf"]
    assert table[1]["mean_bsld"] == originals[0].values("mean_bsld")[0, 1]
    assert table[0]["warmup_jobs"] == 20


@pytest.mark.parametrize("name", ["segments.parquet", "records.parquet", "cases.json", "jobs-0.parquet"])
def test_lost_and_damaged_files_are_named(tmp_path, name):
    folder = saved(tmp_path / "c", comparisons())
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(whole[:-3])
    with pytest.raises(InputError, match=f"{name} was modified"):
        load_comparison(folder)
    (folder / name).unlink()
    with pytest.raises(InputError, match=f"incomplete: {name}"):
        open_folder(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["files"][name]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match=f"incomplete: its manifest lacks {name}"):
        load_comparison(folder)


def test_folder_kinds_are_checked(tmp_path):
    comparison = saved(tmp_path / "c", comparisons())
    with pytest.raises(InputError, match="not a run"):
        load_run(comparison)
    log = kw.simulate(kw.lublin(20, 4), kw.Cluster.from_nodes(4), backfill="none")
    run = save_run(tmp_path / "r", log, scenario={}, results={})
    with pytest.raises(InputError, match="not a comparison"):
        load_comparison(run)
    other = save_folder(tmp_path / "o", lambda folder: None, kind="cake")
    with pytest.raises(InputError, match="'cake', which is neither"):
        open_folder(other)


def save_and_load_run(tmp_path, name, jobs, policy="fcfs", nodes=8, **scenario):
    log = kw.simulate(jobs, kw.Cluster.from_nodes(nodes), policy, "easy")
    path = save_run(tmp_path / name, log, scenario={"trace": name, "policy": policy, **scenario}, results={})
    return load_run(path)


def test_comparison_of_runs(tmp_path):
    jobs = kw.lublin(200, 8, load=0.9, seed=3)
    reversed_jobs = jobs[np.arange(200)[::-1]]
    runs = [save_and_load_run(tmp_path, name, reversed_jobs, name) for name in ("fcfs", "sjf")]
    loaded = comparison_of_runs(runs)
    assert loaded.labels == ("fcfs", "sjf") and loaded.size == 8
    for number, run in enumerate(runs):
        assert loaded.values("mean_bsld")[number, 0] == pytest.approx(kw.metrics(run.log)["mean_bsld"], rel=1e-12)
        ours = loaded.logs(number, 0)
        np.testing.assert_array_equal(ours.jobs()["start_s"], run.log.jobs()["start_s"][::-1])
    twice = comparison_of_runs([runs[0], save_and_load_run(tmp_path, "again", reversed_jobs)])
    assert twice.labels == ("fcfs (fcfs)", "fcfs (again)")


def test_runs_of_different_jobs_or_clusters_are_refused(tmp_path):
    first = save_and_load_run(tmp_path, "one", kw.lublin(50, 8, seed=1))
    second = save_and_load_run(tmp_path, "two", kw.lublin(50, 8, seed=2))
    with pytest.raises(InputError, match=r"different jobs \(one, 50 jobs and two, 50 jobs\)"):
        comparison_of_runs([first, second])
    wide = save_and_load_run(tmp_path, "wide", kw.lublin(50, 8, seed=1), nodes=16)
    with pytest.raises(InputError, match="different machines"):
        comparison_of_runs([first, wide])
    with pytest.raises(InputError, match="no runs"):
        comparison_of_runs([])
