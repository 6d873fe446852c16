"""GPU clusters from the command line."""

from __future__ import annotations

import numpy as np
import pytest

import kilowait as kw
from kilowait.evaluation import gpu_metrics
from kilowait.evaluation.folders import load_comparison, load_run
from kilowait.experiments.placing import speeds_for
from kilowait.policies.rounds import ROUNDS

TRACE = "gpu:200:gpu-mixed:1.1:4"
MIXED = kw.Cluster.preset("gpu-mixed")


def test_simulate(kilowait, tmp_path):
    words = ("simulate", TRACE, "--policy", "las", "--checkpoint", "30m", "--restore", "1m", "--by", "size")
    found = kilowait(*words, "--json", "--out", tmp_path / "run").json()
    assert found["scenario"]["placed"]["checkpoint"] == "30m" and found["scenario"]["backfill"] == "none"
    assert {row["type"] for row in found["gpus"]["by_type"]} == {"A100", "V100", "T4", "RTX4090"}
    run = load_run(tmp_path / "run")
    jobs = run.log.jobs_table
    own = gpu_metrics(run.log, MIXED, speeds_for("auto", jobs, MIXED))
    assert own["preemptions"] > 0 and own["lost_gpu_hours"] > 0
    assert found["gpus"]["metrics"]["mean_jct_s"] == own["mean_jct_s"]
    assert found["metrics"]["utilization"] == pytest.approx(own["gpu_utilization"])
    shown = kilowait(*words).out
    for text in (
        "completion time (JCT)",
        "every 30 min of work, loading 1 min",
        "RTX4090",
        "rho",
        "measured",
    ):
        assert text in shown


def test_the_report_of_a_placed_run(kilowait, tmp_path):
    run, both = tmp_path / "run", tmp_path / "both"
    assert kilowait("simulate", TRACE, "--policy", "srtf", "--out", run).status == 0
    said = kilowait("report", run, "--out", tmp_path / "run.html", "--figures", tmp_path / "figures")
    assert said.status == 0, said.err
    assert "several jobs may share a node" in (tmp_path / "run.html").read_text()
    assert kilowait("compare", TRACE, "--policies", "fcfs,srtf", "--out", both).status == 0
    assert kilowait("report", both, "--out", tmp_path / "both.html").status == 0


def test_compare(kilowait, tmp_path):
    words = ("compare", TRACE, "--policies", "fcfs,las,gavel", "--windows", "3", "--window", "60")
    words = (*words, "--restore", "1m", "--out", tmp_path / "both")
    found = kilowait(*words, "--json").json()["traces"][0]
    assert found["metric"] == "mean_turnaround_s" and not found["lower_bounds"]
    assert {row["policy"] for row in found["rows"]} == {"fcfs", "las", "gavel"}
    contest = load_comparison(tmp_path / "both").contests[0]
    for who, label in enumerate(contest.labels):
        window = contest.windows[1]
        log = contest.logs(who, 1)
        assert log.run["restore_s"] == 60.0
        own = kw.simulate(
            window.jobs,
            MIXED,
            contest.contenders[who].policy,
            placing=kw_placing(contest.contenders[who].policy),
            speeds=speeds_for("auto", window.jobs, MIXED),
        )
        np.testing.assert_array_equal(log.end_s, own.end_s)
        for name in ("segment", "node", "gpus", "milli", "count", "work_s", "lost_s", "node_group"):
            ours, theirs = getattr(log.pieces, name), getattr(own.pieces, name)
            assert ours.dtype == theirs.dtype
            np.testing.assert_array_equal(ours, theirs)
        assert label in found["gpus"]
    again = kilowait(*words, "--force", "--json")
    assert "9 of 9 cells were there already" in again.err
    assert again.json()["traces"][0]["gpus"] == found["gpus"]


def kw_placing(policy):
    from kilowait.policies.simulation import placing_of

    return placing_of(policy, restore_s=60.0)


def test_cells_that_were_kept_are_whole(kilowait, tmp_path, monkeypatch):
    """A comparison that breaks off goes on where it stopped, with the places of its jobs."""
    from kilowait.experiments import plan

    def broken(*_, **__):
        raise KeyboardInterrupt

    words = ("compare", TRACE, "--policies", "fcfs,las", "--json", "--out", tmp_path / "both")
    with monkeypatch.context() as patched:
        patched.setattr(plan, "Contest", broken)
        assert kilowait(*words).status == 130
    said = kilowait(*words)
    assert "2 of 2 cells were there already" in said.err
    assert said.json()["traces"][0]["gpus"]["las, no backfill"]["preemptions"] > 0


def test_the_table_of_gpus_is_shown(kilowait):
    shown = kilowait("compare", TRACE, "--policies", "fcfs,las", "--power", "auto").out
    assert "fragments" in shown and "GPU-hours" in shown and "nodes\nbusy" not in shown
    assert "energy" in shown


def test_power(kilowait):
    found = kilowait("simulate", TRACE, "--power", "auto", "--types", "least-energy", "--json").json()
    fast = kilowait("simulate", TRACE, "--power", "auto", "--types", "fastest", "--json").json()
    spent = [one["energy"]["kwh_by_state"]["jobs"] for one in (found, fast)]
    assert 0 < spent[0] < spent[1]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("simulate", TRACE, "--backfill", "easy"), "take none"),
        (("simulate", "lublin:50:8", "--policy", "las"), "gpu-mixed"),
        (("simulate", "lublin:50:8", "--policy", "gavel"), "gpu-mixed"),
        (("simulate", "lublin:50:8", "--migrate"), "--migrate is for clusters of placed nodes"),
        (("simulate", TRACE, "--passes", "event"), "passes"),
        (("simulate", TRACE, "--power", "auto", "--levers", "sleep=break-even"), "placed nodes have none"),
        (("simulate", TRACE, "--speeds", "none.json"), "speeds are 'none.json'"),
        (("simulate", TRACE, "--policy", "gavle"), "did you mean 'gavel'"),
        (("compare", TRACE, "lublin:50:8"), "compare them apart"),
        (("simulate", TRACE, "--placement", "fdg"), "did you mean 'fgd'"),
    ],
)
def test_errors(kilowait, words, told):
    assert told in kilowait(*words).error()


def test_lists(kilowait):
    rows = {row["name"]: row for row in kilowait("policies", "--json").json()}
    assert set(ROUNDS) <= set(rows) and rows["las"]["placed_nodes_only"]
    assert not rows["sjf"]["placed_nodes_only"]
    listed = kilowait("clusters", "--gpus", "--json").json()
    assert "fgd" in listed["placements"] and any(row["name"] == "T4" for row in listed["gpus"])
    assert "G2" in kilowait("clusters", "--gpus").out
