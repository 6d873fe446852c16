"""GPU clusters from the command line."""

from __future__ import annotations

import numpy as np
import pytest

import kilowait as kw
from kilowait.evaluation import gpu_metrics
from kilowait.evaluation.storage import load_comparison, load_run
from kilowait.experiments.gpu_settings import speeds_for
from kilowait.policies.round_based import ROUND_BASED_POLICIES

TRACE = "gpu:200:gpu-mixed:1.1:4"
MIXED = kw.Cluster.preset("gpu-mixed")


def test_simulate(kilowait, tmp_path):
    words = (
        "simulate",
        TRACE,
        "--policy",
        "las",
        "--checkpoint-interval",
        "30m",
        "--checkpoint-load-time",
        "1m",
        "--by",
        "size",
    )
    found = kilowait(*words, "--json", "--out", tmp_path / "run").json()
    assert (
        found["scenario"]["gpu"]["checkpoint_interval"] == "30m" and found["scenario"]["backfill"] == "none"
    )
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
        "every 30 min of work, load time 1 min",
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
    words = (*words, "--checkpoint-load-time", "1m", "--out", tmp_path / "both")
    found = kilowait(*words, "--json").json()["traces"][0]
    assert found["metric"] == "mean_turnaround_s" and not found["lower_bounds"]
    assert {row["policy"] for row in found["rows"]} == {"fcfs", "las", "gavel"}
    contest = load_comparison(tmp_path / "both").comparisons[0]
    for who, label in enumerate(contest.labels):
        window = contest.windows[1]
        log = contest.logs(who, 1)
        assert log.run["checkpoint_load_s"] == 60.0
        own = kw.simulate(
            window.jobs,
            MIXED,
            contest.policies[who].policy,
            settings=kw_placing(contest.policies[who].policy),
            speeds=speeds_for("auto", window.jobs, MIXED),
        )
        np.testing.assert_array_equal(log.end_s, own.end_s)
        for name in ("segment", "node", "gpus", "gpu_milli", "count", "work_s", "lost_s", "node_group"):
            ours, theirs = getattr(log.pieces, name), getattr(own.pieces, name)
            assert ours.dtype == theirs.dtype
            np.testing.assert_array_equal(ours, theirs)
        assert label in found["gpus"]
    again = kilowait(*words, "--force", "--json")
    assert "9 of 9 runs were read from the folder" in again.err
    assert again.json()["traces"][0]["gpus"] == found["gpus"]


def kw_placing(policy):
    from kilowait.policies.simulation import gpu_settings_for

    return gpu_settings_for(policy, checkpoint_load_s=60.0)


def test_cells_that_were_kept_are_whole(kilowait, tmp_path, monkeypatch):
    """A comparison that breaks off goes on where it stopped, with the places of its jobs."""
    from kilowait.experiments import comparison_plan

    def broken(*_, **__):
        raise KeyboardInterrupt

    words = ("compare", TRACE, "--policies", "fcfs,las", "--json", "--out", tmp_path / "both")
    with monkeypatch.context() as patched:
        patched.setattr(comparison_plan, "comparison_of", broken)
        assert kilowait(*words).status == 130
    said = kilowait(*words)
    assert "2 of 2 runs were read from the folder" in said.err
    assert said.json()["traces"][0]["gpus"]["las"]["preemptions"] > 0


def test_the_table_of_gpus_is_shown(kilowait):
    shown = kilowait("compare", TRACE, "--policies", "fcfs,las", "--power", "auto").out
    assert "fragmen-" in shown and "GPU-hours" in shown and "utilization\n" not in shown
    assert "energy" in shown


def test_power(kilowait):
    found = kilowait(
        "simulate", TRACE, "--power", "auto", "--gpu-type-order", "least-energy", "--json"
    ).json()
    fast = kilowait("simulate", TRACE, "--power", "auto", "--gpu-type-order", "fastest", "--json").json()
    spent = [one["energy"]["kwh_by_state"]["jobs"] for one in (found, fast)]
    assert 0 < spent[0] < spent[1]


def test_compare_crosses_placements(kilowait, tmp_path):
    words = ("compare", TRACE, "--policies", "fcfs,las", "--placement", "first,fgd,best", "--json")
    words = (*words, "--out", tmp_path / "both")
    found = kilowait(*words).json()
    labels = [row["label"] for row in found["traces"][0]["rows"]]
    assert labels == ["fcfs@first", "fcfs@fgd", "fcfs@best", "las@first", "las@fgd", "las@best"]
    assert set(found["traces"][0]["gpus"]) == set(labels)
    assert "placement" not in found["scenario"]["case"][0]
    assert "6 of 6 runs were read from the folder" in kilowait(*words, "--force").err
    alone = kilowait("compare", TRACE, "--policies", "fcfs", "--placement", "fgd,", "--json").json()
    assert alone["scenario"]["case"][0]["placement"] == "fgd"
    assert alone["traces"][0]["rows"][0]["metrics"] == found["traces"][0]["rows"][1]["metrics"]


def test_gpu_caps(kilowait, tmp_path):
    words = (
        "compare",
        TRACE,
        "--policies",
        "fcfs",
        "--power",
        "auto",
        "--gpu-power-cap",
        "none,60%",
        "--json",
    )
    rows = kilowait(*words, "--out", tmp_path / "both").json()["traces"][0]["rows"]
    assert [row["power_controls"] for row in rows] == ["none", "gpu-cap=60%"]
    free, held = (row["metrics"] for row in rows)
    assert held["mean_turnaround_s"] > free["mean_turnaround_s"] and held["peak_kw"] < free["peak_kw"]
    assert kilowait("report", tmp_path / "both", "--out", tmp_path / "both.html").status == 0
    run = kilowait("simulate", TRACE, "--power", "auto", "--gpu-power-cap", "0.6", "--json").json()
    assert run["scenario"]["power_controls"] == "gpu-cap=60%"
    assert run["metrics"]["mean_turnaround_s"] == held["mean_turnaround_s"]
    assert run["energy"]["power_controls"] == "GPUs are capped at 60 % of their power limit"
    shown = kilowait("energy", "controls", TRACE, "--gpu-power-cap", "none,80%").out
    assert "fcfs, gpu-cap=80%" in shown and "on its most efficient GPU type" in shown


JOBS = "id,submitted,ran,nodes,cores,gpus,part,types,after"
COLUMNS = (
    "job_id=id,submit_s=submitted,runtime_s=ran,nodes=nodes,cores=cores,gpus=gpus,gpu_milli=part,gpu_types=types,"
    "after_id=after"
)


def table(tmp_path, *rows):
    path = tmp_path / "jobs.csv"
    path.write_text("\n".join((JOBS, "1,0,3600,1,4,1,1000,V100,-1", *rows)) + "\n")
    return path, "--columns", COLUMNS, "--cluster", "gpu-mixed"


def test_dependencies_are_ignored_where_asked(kilowait, tmp_path):
    words = table(tmp_path, "2,10,60,1,4,1,1000,V100,1")
    assert "--ignore-dependencies" in kilowait("simulate", *words).error()
    said = kilowait("simulate", *words, "--ignore-dependencies", "--json")
    assert "note: 1 of 2 jobs follow another one (after_id): submitted at the times of the log" in said.err
    assert said.json()["metrics"]["mean_wait_s"] == 0.0
    assert said.json()["scenario"]["dependencies"] is False
    assert "follow another one" in kilowait("compare", *words, "--ignore-dependencies").err


def test_jobs_that_cannot_be(kilowait, tmp_path):
    """Each is an error in one line, or stands in the ledger."""
    assert (
        "did you mean 'v100'" in kilowait("simulate", *table(tmp_path, "2,10,60,1,4,1,1000,V101,-1")).error()
    )
    words = table(tmp_path, "2,10,60,1,4,16,1000,V100,-1")
    assert "or --on-oversized drop to leave such jobs out" in kilowait("simulate", *words).error()
    assert kilowait("simulate", *words, "--on-oversized", "drop", "--json").json()["metrics"]["rejected"] == 1
    for row, told in (
        ("2,10,60,1,4,2,500,V100,-1", "fractional GPU requested with other than 1 GPU: whole GPUs used"),
        ("2,10,-60,1,4,1,1000,V100,-1", "run time below 0"),
    ):
        said = kilowait("simulate", *table(tmp_path, row), "--json").json()
        assert told in str(said["ledger"])


def test_pods_that_are_never_deleted(kilowait, tmp_path):
    pod = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase"
    path = tmp_path / "pods.csv"
    path.write_text(
        f"{pod},creation_time,deletion_time,scheduled_time\na,6000,1024,1,460,,LS,Running,0,900,0\nb,6000,1024,1,460,,LS,Running,10,,10\n"
    )
    said = kilowait("simulate", path, "--cluster", "openb", "--json").json()
    assert "not deleted in the trace" in str(said["ledger"]) and said["metrics"]["jobs"] == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("simulate", TRACE, "--backfill", "easy"), "take none"),
        (("simulate", "lublin:50:8", "--policy", "las"), "gpu-mixed"),
        (("simulate", "lublin:50:8", "--policy", "gavel"), "gpu-mixed"),
        (("simulate", "lublin:50:8", "--migrate"), "migrate is for GPU clusters"),
        (("simulate", TRACE, "--schedule-per", "event"), "--schedule-per is 'event'"),
        (
            ("simulate", TRACE, "--overrun", "steps"),
            "overrun is 'steps'; GPU clusters have no such setting",
        ),
        (
            ("simulate", TRACE, "--power", "auto", "--power-controls", "sleep=break-even"),
            "are for batch clusters",
        ),
        (
            ("simulate", "lublin:50:8", "--power", "taurus", "--gpu-power-cap", "60%"),
            "--gpu-power-cap is for GPU clusters",
        ),
        (
            ("compare", "lublin:50:8", "--power", "taurus", "--gpu-power-cap", "60%"),
            "--gpu-power-cap is for GPU clusters",
        ),
        (("simulate", TRACE, "--gpu-power-cap", "60%"), "needs a power model; name one with --power"),
        (("simulate", TRACE, "--power", "auto", "--gpu-power-cap", "200W"), "GPU types differ"),
        (("simulate", TRACE, "--power", "auto", "--gpu-power-cap", "80%,60%"), "a run has one cap"),
        (("simulate", TRACE, "--power", "auto", "--gpu-power-cap", "5%"), "give a cap above"),
        (
            ("compare", TRACE, "--power", "auto", "--gpu-power-cap", "80%", "--power-controls", "all"),
            "no cluster supports both",
        ),
        (("compare", TRACE, "--placement", "first,fdg"), "did you mean 'fgd'"),
        (("compare", TRACE, "--placement", "first,balance"), "on 'gpu-mixed' 'balance'"),
        (("simulate", TRACE, "--gpu-speeds", "none.json"), "speeds are 'none.json'"),
        (("simulate", TRACE, "--policy", "gavle"), "did you mean 'gavel'"),
        (("compare", TRACE, "lublin:50:8"), "compare them separately"),
        (("simulate", TRACE, "--placement", "fdg"), "did you mean 'fgd'"),
    ],
)
def test_errors(kilowait, words, told):
    assert told in kilowait(*words).error()


def test_lists(kilowait):
    rows = {row["name"]: row for row in kilowait("policies", "--json").json()}
    assert set(ROUND_BASED_POLICIES) <= set(rows) and rows["las"]["placed_nodes_only"]
    assert not rows["sjf"]["placed_nodes_only"]
    listed = kilowait("clusters", "--gpus", "--json").json()
    assert "fgd" in listed["placements"] and any(row["name"] == "T4" for row in listed["gpus"])
    assert "G2" in kilowait("clusters", "--gpus").out
