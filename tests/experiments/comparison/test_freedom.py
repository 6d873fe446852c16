"""Contenders on a GPU cluster have the same freedom; a run that would not end ends only its policy."""

from __future__ import annotations

import numpy as np
import pytest

import kilowait as kw
from kilowait.agents.linear_gpu import agent_equal_to_policy
from kilowait.errors import InputError, NoProgressError
from kilowait.evaluation.comparison.freedom import difference_sentence, freedom_of_run
from kilowait.experiments.comparison.results import summarize_comparison
from kilowait.policies import as_policy
from kilowait.policies.simulation import gpu_settings_for
from kilowait.synth import gpu_workload

MIXED = kw.Cluster.preset("gpu-mixed")
JOBS = gpu_workload(80, MIXED, load=1.3, seed=2)
EVERYTHING = ("preempt", "migrate", "types", "skip")


def freedoms(comparison):
    return {label: freedom_of_run(comparison.logs(number, 0).run) for number, label in enumerate(comparison.labels)}


@pytest.mark.parametrize(
    ("policies", "may"), [(("fcfs", "sjf"), ()), (("fcfs", "srtf"), ("preempt",)), (("fcfs", "gavel"), EVERYTHING)]
)
def test_all_contenders_may_do_what_one_may(policies, may):
    comparison = kw.compare(JOBS, MIXED, policies)
    assert set(freedoms(comparison).values()) == {may}
    sentences = summarize_comparison(comparison, "mean_turnaround_s", seed=0)["sentences"]
    assert not any("different freedom" in sentence for sentence in sentences)


def test_an_agent_gives_its_freedom_to_the_policies():
    agent = agent_equal_to_policy("sjf", 56, gpu_type_order="fastest", migrate=True)
    comparison = kw.compare(JOBS, MIXED, {"sjf": "sjf", "agent": agent})
    assert set(freedoms(comparison).values()) == {("migrate", "types", "skip")}
    # the agent is SJF, so with the same freedom both have the same schedule
    np.testing.assert_array_equal(comparison.logs(0, 0).jobs()["end_s"], comparison.logs(1, 0).jobs()["end_s"])
    alone = kw.simulate(JOBS, MIXED, agent, "skip")
    np.testing.assert_array_equal(comparison.logs(1, 0).jobs()["end_s"], alone.jobs()["end_s"])


def test_freedom_that_was_asked_for_is_kept_and_said():
    comparison = kw.compare(JOBS, MIXED, ["fcfs", "srtf:preempt=0", "srtf:migrate=1"])
    by_label = freedoms(comparison)
    assert by_label == {
        "fcfs": ("preempt", "migrate"),
        "srtf:preempt=0": ("migrate",),
        "srtf:migrate=1": by_label["fcfs"],
    }
    rows = summarize_comparison(comparison, "mean_turnaround_s", seed=0)
    text = " ".join(rows["sentences"])
    assert "may preempt jobs, srtf:preempt=0 may not." in text
    assert [row["may"] for row in rows["rows"]] == [list(by_label[label]) for label in comparison.labels]
    assert rows["preemption_costs"]["checkpoint_load_s"] == 30.0
    without = freedoms(kw.compare(JOBS, MIXED, ["fcfs", "srtf"], preempt=False))
    assert set(without.values()) == {()}
    given = freedoms(kw.compare(JOBS, MIXED, ["fcfs", "srtf"], settings=kw.GpuSettings(migrate=True)))
    assert set(given.values()) == {("migrate",)}


def test_parameters_of_a_policy_go_before_the_settings_of_the_run():
    policy = as_policy("srtf:preempt=0:types=fastest")
    settings = gpu_settings_for(policy, preempt=True)
    assert (settings.preempt, settings.gpu_type_order) == (False, "fastest")
    with pytest.raises(InputError, match="preempt is 'no'; it must be 0 or 1"):
        as_policy("srtf:preempt=no")
    with pytest.raises(InputError, match="allocates GPUs on single nodes"):
        kw.simulate(kw.lublin(20, 8), kw.Cluster.from_nodes(8), "sjf:preempt=0")


def test_difference_of_freedom_names_both_sides():
    text = difference_sentence("agent", ("types", "skip"), "srtf", ("preempt",))
    assert text == (
        "They have different freedom: agent may try some GPU types first and let jobs overtake blocked ones, srtf may "
        "not; srtf may preempt jobs, agent may not."
    )
    assert not difference_sentence("a", ("preempt",), "b", ("preempt",))


# -- runs that would not end -------------------------------------------------------------------------------


ONE = kw.Cluster((kw.NodeGroup("a", 1, cores=8, gpus=8, gpu_type="V100", node_level=True),))
LONG = kw.JobTable(job_id=[1, 2], submit_s=[0, 0], runtime_s=[4000, 4000], nodes=[1, 1], gpus=[8, 8])


def test_a_run_that_would_not_end_ends_its_policy_only():
    comparison = kw.compare(LONG, ONE, ["fcfs", "las", "sjf"], checkpoint_s=np.inf)
    assert comparison.labels == ("fcfs", "sjf") and list(comparison.failed) == ["las"]
    assert comparison.values("mean_turnaround_s").shape == (2, 1)
    results = summarize_comparison(comparison, "mean_turnaround_s", seed=0)
    assert "policy 'las' makes no progress" in results["failed"]["las"]
    assert any(note.startswith("las has no results: policy 'las' makes no progress") for note in results["notes"])


def test_an_error_of_every_policy_is_an_error():
    with pytest.raises(NoProgressError, match="policy 'las' makes no progress"):
        kw.compare(LONG, ONE, ["las"], checkpoint_s=np.inf)
