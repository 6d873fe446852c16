"""GPU clusters from the command line."""

from __future__ import annotations

import numpy as np
import pytest

import kilowait as kw
from kilowait.evaluation import gpu_metrics
from kilowait.evaluation.storage import load_comparison, load_run
from kilowait.experiments.gpu_options import speeds_for
from kilowait.policies.round_based import ROUND_BASED_POLICIES

TRACE = "gpu:200:gpu-mixed:1.1:4"
MIXED = kw.Cluster.preset("gpu-mixed")


def test_simulate(kilowait, tmp_path):
    args = (
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
    report = kilowait(*args, "--json", "--out", tmp_path / "run").json()
    assert report["scenario"]["gpu"]["checkpoint_interval"] == "30m" and report["scenario"]["backfill"] == "none"
    assert {row["type"] for row in report["gpus"]["by_type"]} == {"A100", "V100", "T4", "RTX4090"}
    run = load_run(tmp_path / "run")
    jobs = run.log.jobs_table
    expected = gpu_metrics(run.log, MIXED, speeds_for("auto", jobs, MIXED))
    assert expected["preemptions"] > 0 and expected["lost_gpu_hours"] > 0
    assert report["gpus"]["metrics"]["mean_jct_s"] == expected["mean_jct_s"]
    assert report["metrics"]["utilization"] == pytest.approx(expected["gpu_utilization"])
    output = kilowait(*args).out
    for text in (
        "completion time (JCT)",
        "every 30 min of work, load time 1 min",
        "RTX4090",
        "rho",
        "25 % recorded on that type",
    ):
        assert text in output


def test_report_of_a_gpu_run(kilowait, tmp_path):
    run, both = tmp_path / "run", tmp_path / "both"
    assert kilowait("simulate", TRACE, "--policy", "srtf", "--out", run).status == 0
    result = kilowait("report", run, "--out", tmp_path / "run.html", "--figures", tmp_path / "figures")
    assert result.status == 0, result.err
    assert "several jobs may share a node" in (tmp_path / "run.html").read_text()
    assert kilowait("compare", TRACE, "--policies", "fcfs,srtf", "--out", both).status == 0
    assert kilowait("report", both, "--out", tmp_path / "both.html").status == 0


def test_compare(kilowait, tmp_path):
    args = ("compare", TRACE, "--policies", "fcfs,las,gavel", "--windows", "3", "--window", "60")
    args = (*args, "--checkpoint-load-time", "1m", "--out", tmp_path / "both")
    report = kilowait(*args, "--json").json()["traces"][0]
    assert report["metric"] == "mean_turnaround_s" and not report["lower_bounds"]
    assert {row["policy"] for row in report["rows"]} == {"fcfs", "las", "gavel"}
    comparison = load_comparison(tmp_path / "both").comparisons[0]
    for index, label in enumerate(comparison.labels):
        window = comparison.windows[1]
        log = comparison.logs(index, 1)
        assert log.run["checkpoint_load_s"] == 60.0
        expected = kw.simulate(
            window.jobs,
            MIXED,
            comparison.policies[index].policy,
            settings=settings_for(comparison.policies[index].policy),
            speeds=speeds_for("auto", window.jobs, MIXED),
        )
        np.testing.assert_array_equal(log.end_s, expected.end_s)
        for name in ("segment", "node", "gpus", "gpu_milli", "count", "work_s", "lost_s", "node_group"):
            pieces, expected_pieces = getattr(log.pieces, name), getattr(expected.pieces, name)
            assert pieces.dtype == expected_pieces.dtype
            np.testing.assert_array_equal(pieces, expected_pieces)
        assert label in report["gpus"]
    again = kilowait(*args, "--force", "--json")
    assert "9 of 9 runs were read from the folder" in again.err
    assert again.json()["traces"][0]["gpus"] == report["gpus"]


def settings_for(policy):
    """The settings of a policy beside gavel: the priority policies have its freedom."""
    from kilowait.policies.simulation import gpu_settings_for

    freedom = {} if policy == "gavel" else {"preempt": True, "migrate": True, "gpu_type_order": "fastest"}
    return gpu_settings_for(policy, "skip", checkpoint_load_s=60.0, **freedom)


def test_saved_cells_keep_their_allocations(kilowait, tmp_path, monkeypatch):
    """A resumed comparison reads finished runs with their allocations."""
    from kilowait.experiments.comparison import compare as comparison_plan

    def broken(*_, **__):
        raise KeyboardInterrupt

    args = ("compare", TRACE, "--policies", "fcfs,las", "--json", "--out", tmp_path / "both")
    with monkeypatch.context() as patched:
        patched.setattr(comparison_plan, "Comparison", broken)
        assert kilowait(*args).status == 130
    result = kilowait(*args)
    assert "2 of 2 runs were read from the folder" in result.err
    assert result.json()["traces"][0]["gpus"]["las"]["preemptions"] > 0


def test_compare_prints_gpu_metrics(kilowait):
    output = kilowait("compare", TRACE, "--policies", "fcfs,las", "--power", "auto").out
    assert "fragmen-" in output and "GPU-hours" in output and "utilization\n" not in output
    assert "energy" in output


@pytest.mark.parametrize("workers", [1, 2])
def test_failed_policies_on_the_command_line(kilowait, tmp_path, workers):
    path = tmp_path / "jobs.csv"
    path.write_text("job_id,submit_s,runtime_s,nodes,cores,gpus\n1,0,4000,1,1,4\n2,0,4000,1,1,4\n")
    (tmp_path / "nodes.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\na,8000,16384,4,V100M16\n")
    args = ("compare", path, "--cluster", tmp_path / "nodes.csv", "--policies", "fcfs,las", "--out", tmp_path / "out")
    args = (*args, "--checkpoint-interval", "never", "--workers", str(workers))
    result = kilowait(*args)
    assert result.status == 0, result.err
    assert [line.split()[:2] for line in result.out.splitlines() if line.startswith("las")] == [["las", "error"]]
    for option in ("--preempt-min-runtime", "--round-interval", "--checkpoint-interval", "--no-preempt"):
        assert option in result.err
    folder = load_comparison(tmp_path / "out")
    assert folder.comparisons[0].labels == ("fcfs",) and len(folder.cells) == 1
    assert "las has no results" in folder.comparisons[0].notes[-1]
    assert "1 of 2 runs were read" in kilowait(*args, "--force").err
    assert kilowait("report", tmp_path / "out", "--out", tmp_path / "page.html").status == 0
    assert "Las has no results" in (tmp_path / "page.html").read_text()


def test_least_energy_gpu_types_use_less_energy(kilowait):
    report = kilowait("simulate", TRACE, "--power", "auto", "--gpu-type-order", "least-energy", "--json").json()
    fast = kilowait("simulate", TRACE, "--power", "auto", "--gpu-type-order", "fastest", "--json").json()
    energy_kwh = [run_result["energy"]["kwh_by_state"]["jobs"] for run_result in (report, fast)]
    assert 0 < energy_kwh[0] < energy_kwh[1]


def test_compare_runs_every_policy_with_every_placement(kilowait, tmp_path):
    args = ("compare", TRACE, "--policies", "fcfs,las", "--placement", "first,fgd,best", "--json")
    args = (*args, "--out", tmp_path / "both")
    report = kilowait(*args).json()
    labels = [row["label"] for row in report["traces"][0]["rows"]]
    assert labels == ["fcfs@first", "fcfs@fgd", "fcfs@best", "las@first", "las@fgd", "las@best"]
    assert set(report["traces"][0]["gpus"]) == set(labels)
    assert "placement" not in report["scenario"]["case"][0]
    assert "6 of 6 runs were read from the folder" in kilowait(*args, "--force").err
    alone = kilowait("compare", TRACE, "--policies", "fcfs", "--placement", "fgd,", "--json").json()
    assert alone["scenario"]["case"][0]["placement"] == "fgd"
    assert alone["traces"][0]["rows"][0]["metrics"] == report["traces"][0]["rows"][1]["metrics"]


def test_gpu_power_caps(kilowait, tmp_path):
    args = ("compare", TRACE, "--policies", "fcfs", "--power", "auto", "--gpu-power-cap", "none,60%", "--json")
    rows = kilowait(*args, "--out", tmp_path / "both").json()["traces"][0]["rows"]
    assert [row["power_controls"] for row in rows] == ["none", "gpu-cap=60%"]
    uncapped, capped = (row["metrics"] for row in rows)
    assert capped["mean_turnaround_s"] > uncapped["mean_turnaround_s"] and capped["peak_kw"] < uncapped["peak_kw"]
    assert kilowait("report", tmp_path / "both", "--out", tmp_path / "both.html").status == 0
    simulated = kilowait("simulate", TRACE, "--power", "auto", "--gpu-power-cap", "0.6", "--json").json()
    assert simulated["scenario"]["power_controls"] == "gpu-cap=60%"
    assert simulated["metrics"]["mean_turnaround_s"] == capped["mean_turnaround_s"]
    assert simulated["energy"]["power_controls"] == "GPUs are capped at 60 % of their power limit"
    output = kilowait("energy", "controls", TRACE, "--gpu-power-cap", "none,80%").out
    assert "fcfs, gpu-cap=80%" in output and "on its most efficient GPU type" in output


JOBS = "id,submitted,ran,nodes,cores,gpus,part,types,after"
COLUMNS = (
    "job_id=id,submit_s=submitted,runtime_s=ran,nodes=nodes,cores=cores,gpus=gpus,gpu_milli=part,gpu_types=types,"
    "after_id=after"
)


def table(tmp_path, *rows):
    path = tmp_path / "jobs.csv"
    path.write_text("\n".join((JOBS, "1,0,3600,1,4,1,1000,V100,-1", *rows)) + "\n")
    return path, "--columns", COLUMNS, "--cluster", "gpu-mixed"


def test_ignore_dependencies(kilowait, tmp_path):
    args = table(tmp_path, "2,10,60,1,4,1,1000,V100,1")
    assert "--ignore-dependencies" in kilowait("simulate", *args).error()
    result = kilowait("simulate", *args, "--ignore-dependencies", "--json")
    assert "note: 1 of 2 jobs follow another one (after_id): submitted at the times of the log" in result.err
    assert result.json()["metrics"]["mean_wait_s"] == 0.0
    assert result.json()["scenario"]["dependencies"] is False
    assert "follow another one" in kilowait("compare", *args, "--ignore-dependencies").err


def test_jobs_are_killed_at_their_limit(kilowait, tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text("job_id,submit_s,runtime_s,estimate_s,nodes,gpus\n1,0,100,50,1,1\n2,0,100,200,1,1\n")
    call = ("simulate", path, "--cluster", "gpu-mixed", "--gpu-speeds", "none")
    killed = kilowait(*call, "--at-limit", "kill")
    assert "at limit kill" in killed.out and "2, 1 killed at their limit\n" in killed.out
    assert "at limit" not in kilowait(*call).out and "killed at" not in kilowait(*call).out


def test_impossible_jobs(kilowait, tmp_path):
    """Each is a one-line error or an entry of the cleaning report."""
    assert "did you mean 'v100'" in kilowait("simulate", *table(tmp_path, "2,10,60,1,4,1,1000,V101,-1")).error()
    args = table(tmp_path, "2,10,60,1,4,16,1000,V100,-1")
    assert "or --oversized drop to leave such jobs out" in kilowait("simulate", *args).error()
    assert kilowait("simulate", *args, "--oversized", "drop", "--json").json()["metrics"]["rejected"] == 1
    for row, message in (
        ("2,10,60,1,4,2,500,V100,-1", "fractional GPU requested with other than 1 GPU: whole GPUs used"),
        ("2,10,-60,1,4,1,1000,V100,-1", "run time below 0"),
    ):
        report = kilowait("simulate", *table(tmp_path, row), "--json").json()
        assert message in str(report["ledger"])


def test_pods_without_a_deletion_time(kilowait, tmp_path):
    pod = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase"
    path = tmp_path / "pods.csv"
    path.write_text(
        f"{pod},creation_time,deletion_time,scheduled_time\na,6000,1024,1,460,,LS,Running,0,900,0\nb,6000,1024,1,460,,LS,Running,10,,10\n"
    )
    report = kilowait("simulate", path, "--cluster", "openb", "--json").json()
    assert "not deleted in the trace" in str(report["ledger"]) and report["metrics"]["jobs"] == 2


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("simulate", TRACE, "--backfill", "easy"), "use none"),
        (("simulate", "lublin:50:8", "--policy", "las"), "gpu-mixed"),
        (("simulate", "lublin:50:8", "--policy", "gavel"), "gpu-mixed"),
        (("simulate", "lublin:50:8", "--migrate"), "migrate is for GPU clusters"),
        (("simulate", TRACE, "--schedule-per", "event"), "--schedule-per is 'event'"),
        (("simulate", TRACE, "--overrun", "steps"), "overrun is 'steps'; GPU clusters have no such setting"),
        (("simulate", TRACE, "--power", "auto", "--power-controls", "sleep=break-even"), "are for batch clusters"),
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
def test_error_messages(kilowait, args, message):
    assert message in kilowait(*args).error()


def test_policies_and_clusters_are_listed(kilowait):
    rows = {row["name"]: row for row in kilowait("policies", "--json").json()}
    assert set(ROUND_BASED_POLICIES) <= set(rows) and rows["las"]["placed_nodes_only"]
    assert not rows["sjf"]["placed_nodes_only"]
    listed = kilowait("clusters", "--gpus", "--json").json()
    assert "fgd" in listed["placements"] and any(row["name"] == "T4" for row in listed["gpus"])
    assert "G2" in kilowait("clusters", "--gpus").out


GOOGLE_LIKE = "job_id,submit_s,runtime_s,nodes,cores,gpus\n" + "".join(
    f"{number},{60 * number},600,1,{900 if number % 6 == 0 else 4},{0 if number % 6 == 0 else 1}\n"
    for number in range(300)
)
"""300 jobs, a sixth of which need more cores than any node has."""
SMALL_SEARCH = ("--generations", "1", "--population", "4", "--windows", "2", "--window", "10")


def test_one_rule_for_jobs_that_fit_on_no_node(kilowait, tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text(GOOGLE_LIKE)
    machine = tmp_path / "site.toml"
    machine.write_text(
        'name = "site"\n[[group]]\nname = "a"\nnodes = 2\ncores = 64\ngpus = 4\ngpu_type = "V100"\nnode_level = true\n'
    )
    log = (path, "--cluster", machine)
    train = ("train", *log, "--algo", "cma-es", *SMALL_SEARCH, "--out", tmp_path / "agent")
    evaluate = ("evaluate", tmp_path / "agent", *log, "--windows", "2", "--window", "10")
    for command in (train, ("simulate", *log), ("compare", *log, "--policies", "fcfs,sjf")):
        assert (
            "it fits on no nodes of the cluster: use a larger cluster, or --oversized drop"
            in kilowait(*command).error()
        )
    note = "note: 50 of 300 jobs are larger than the cluster and are left out"
    trained = kilowait(*train, "--oversized", "drop")
    assert trained.status == 0 and note in trained.err
    assert 'on_oversized = "drop"' in (tmp_path / "agent" / "scenario.toml").read_text()
    assert "--oversized drop" in kilowait(*evaluate).error()
    evaluated = kilowait(*evaluate, "--oversized", "drop")
    assert evaluated.status == 0 and note in evaluated.err
    compared = kilowait("compare", *log, "--policies", "fcfs,sjf", "--oversized", "drop")
    assert compared.status == 0 and note in compared.err
    assert "300, 50 did not fit and were left out" in kilowait("simulate", *log, "--oversized", "drop").out


def test_a_workload_without_gpu_jobs_is_said(kilowait, tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text("job_id,submit_s,runtime_s,nodes,cores,gpus\n1,0,60,1,4,0\n2,5,60,1,4,0\n")
    for verb in (("simulate",), ("compare", "--policies", "fcfs,sjf")):
        result = kilowait(verb[0], path, *verb[1:], "--cluster", "openb")
        assert "note: none of the 2 jobs requests a GPU: all run on the cores of openb" in result.err
