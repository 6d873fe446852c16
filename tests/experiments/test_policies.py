"""Tests of policy configurations: combinations of policies, placements and estimates."""

from __future__ import annotations

import numpy as np
import pytest

import kilowait as kw
from kilowait.cluster import Cluster, NodeGroup
from kilowait.errors import InputError, UnknownNameError
from kilowait.evaluation.storage import load_comparison
from kilowait.experiments.comparison.compare import prepare, run, save
from kilowait.experiments.comparison.plan import ComparisonPlan
from kilowait.experiments.comparison.results import summarize_comparison
from kilowait.experiments.gpu_options import speeds_for
from kilowait.experiments.policies import make_policy_configs, policy_and_placement, policy_notes
from kilowait.experiments.settings import Scenario
from kilowait.jobs import JobTable
from kilowait.policies.simulation import gpu_settings_for

TRACE = "gpu:120:gpu-mixed:1.1:4"
MIXED = kw.Cluster.preset("gpu-mixed")


def prepared_with(policies, placements):
    configs = make_policy_configs(policies, "none", placements=placements, clairvoyant=False)
    return prepare(ComparisonPlan((Scenario(TRACE),), configs))


def test_every_policy_is_run_with_every_placement(tmp_path):
    prepared = prepared_with("fcfs,las,gavel", ["first", "fgd"])
    cache = prepared.cell_cache(tmp_path / "both")
    comparison = run(prepared, cache=cache)[0]
    names = [f"{policy}@{placement}" for policy in ("fcfs", "las", "gavel") for placement in ("first", "fgd")]
    assert [config.policy for config in comparison.policies] == names and len(set(comparison.labels)) == 6
    jobs = prepared.cases[0].workload.jobs
    for number, name in enumerate(names):
        policy, placement = name.split("@")
        expected = kw.simulate(
            jobs,
            MIXED,
            policy,
            settings=gpu_settings_for(policy, placement=placement),
            speeds=speeds_for("auto", jobs, MIXED),
        )
        log = comparison.logs(number, 0)
        assert (log.run["policy"], log.run["placement"]) == (policy, placement)
        np.testing.assert_array_equal(log.end_s, expected.end_s)
        np.testing.assert_array_equal(log.pieces.node, expected.pieces.node)
    results = summarize_comparison(comparison, "mean_turnaround_s", seed=0)
    assert [row["placement"] for row in results["rows"]] == ["first", "fgd"] * 3
    save(tmp_path / "both", prepared, [comparison], {"traces": [results]}, cache, command=[], date="", force=False)
    stored = load_comparison(tmp_path / "both")
    assert [row["policy"] for row in stored.scenario["policy"]] == names
    assert stored.comparisons[0].labels == comparison.labels
    # With one more placement, only the new cells are run.
    prepared = prepared_with("fcfs,las,gavel", ["first", "fgd", "best"])
    cache = prepared.cell_cache(tmp_path / "both")
    run(prepared, cache=cache)
    assert cache.hits == 6


def test_policies_with_their_own_placement():
    assert [config.policy for config in make_policy_configs("las@fgd,sjf", "none", placements=["best", "fgd"])][:3] == [
        "las@fgd",
        "sjf@best",
        "sjf@fgd",
    ]
    assert policy_and_placement("multifactor:age=500") == ("multifactor:age=500", None)
    assert policy_and_placement("agent:a/b.json@fgd") == ("agent:a/b.json", "fgd")
    for make in (lambda: policy_and_placement("las@fdg"), lambda: make_policy_configs("las", "none", "none", ["fdg"])):
        with pytest.raises(UnknownNameError, match="did you mean 'fgd'"):
            make()
    with pytest.raises(UnknownNameError, match="unknown policy 'lsa'"):
        make_policy_configs("lsa@fgd", "none")
    with pytest.raises(InputError, match="list of policies is empty"):
        make_policy_configs(" ,", "none")


def test_unsupported_placements_are_rejected_before_any_run():
    configs = make_policy_configs("fcfs", "none", placements=["first", "balance"])
    with pytest.raises(UnknownNameError, match="on 'gpu-mixed' 'balance'"):
        prepare(ComparisonPlan((Scenario(TRACE),), configs))
    configs = make_policy_configs("fcfs", "easy", placements=["first", "fgd"])
    with pytest.raises(UnknownNameError, match="on '8 nodes' 'fgd'"):
        prepare(ComparisonPlan((Scenario("lublin:20:8"),), configs))


def test_agent_with_several_placements(tmp_path):
    """Labels contain the placement, and a changed file is another agent."""
    from kilowait.agents.linear_gpu import agent_equal_to_policy

    path = tmp_path / "agent.json"
    for number, order in enumerate(("sjf", "fcfs", "fcfs")):
        agent_equal_to_policy(order, 56).save(path)
        prepared = prepared_with(f"agent:{path}", ["first", "fgd"])
        cache = prepared.cell_cache(tmp_path / "both")
        assert run(prepared, cache=cache)[0].labels == ("agent@first", "agent@fgd")
        assert cache.hits == (2 if number == 2 else 0)


def test_predicting_policies_are_not_run_with_perfect_estimates():
    configs = make_policy_configs("fcfs,easy++", "easy")
    assert [(config.policy, config.kind) for config in configs] == [
        ("fcfs", "rule"),
        ("easy++", "rule"),
        ("fcfs", "clairvoyant"),
    ]


PRIORITIES = JobTable(job_id=[1, 2], submit_s=[0, 0], runtime_s=[9, 9], nodes=[1, 1], priority=[0, 3])


@pytest.mark.parametrize(
    ("names", "placement", "note"),
    [
        (["fcfs", "balance"], None, "'4 nodes' has one group: it has no effect"),
        (["fcfs"], "balance", "'4 nodes' has one group: it has no effect"),
        (["sjf@balance"], None, "'4 nodes' has one group: it has no effect"),
        (["users:priority"], None, "the jobs have no priorities"),
        (["fcfs", "multifactor:age=5"], "first", None),
    ],
)
def test_notes_on_policies_without_effect(names: list[str], placement: str | None, note: str | None) -> None:
    notes = policy_notes(names, placement, PRIORITIES.with_columns(priority=None), Cluster.from_nodes(4))
    assert len(notes) == (note is not None)
    assert all(str(note) in text for text in notes)
    two_groups = Cluster((NodeGroup("a", 1), NodeGroup("b", 1)))
    assert policy_notes(names, placement, PRIORITIES, two_groups) == ()
