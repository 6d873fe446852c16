"""Who takes part."""

from __future__ import annotations

import numpy as np
import pytest

import kilowait as kw
from kilowait.errors import InputError, UnknownNameError
from kilowait.evaluation.storage import load_comparison
from kilowait.experiments.comparison_plan import (
    ComparisonPlan,
    prepare,
    run,
    save,
)
from kilowait.experiments.comparison_results import summarize_comparison
from kilowait.experiments.gpu_settings import speeds_for
from kilowait.experiments.policy_configs import make_policy_configs, policy_and_placement
from kilowait.experiments.scenario import Scenario
from kilowait.policies.simulation import gpu_settings_for

TRACE = "gpu:120:gpu-mixed:1.1:4"
MIXED = kw.Cluster.preset("gpu-mixed")


def ready_with(policies, placements):
    who = make_policy_configs(policies, "none", placements=placements, clairvoyant=False)
    return prepare(ComparisonPlan((Scenario(TRACE),), who))


def test_every_policy_with_every_placement(tmp_path):
    ready = ready_with("fcfs,las,gavel", ["first", "fgd"])
    store = ready.store(tmp_path / "both")
    contest = run(ready, store=store)[0]
    names = [f"{policy}@{placement}" for policy in ("fcfs", "las", "gavel") for placement in ("first", "fgd")]
    assert [who.policy for who in contest.policies] == names and len(set(contest.labels)) == 6
    jobs = ready.workloads[0].jobs
    for number, name in enumerate(names):
        policy, placement = name.split("@")
        own = kw.simulate(
            jobs,
            MIXED,
            policy,
            settings=gpu_settings_for(policy, placement=placement),
            speeds=speeds_for("auto", jobs, MIXED),
        )
        log = contest.logs(number, 0)
        assert (log.run["policy"], log.run["placement"]) == (policy, placement)
        np.testing.assert_array_equal(log.end_s, own.end_s)
        np.testing.assert_array_equal(log.pieces.node, own.pieces.node)
    found = summarize_comparison(contest, "mean_turnaround_s", seed=0)
    assert [row["placement"] for row in found["rows"]] == ["first", "fgd"] * 3
    save(tmp_path / "both", ready, [contest], {"traces": [found]}, store, command=[], date="", force=False)
    opened = load_comparison(tmp_path / "both")
    assert [row["policy"] for row in opened.scenario["contender"]] == names
    assert opened.comparisons[0].labels == contest.labels
    # One placement more: only what is new is run.
    ready = ready_with("fcfs,las,gavel", ["first", "fgd", "best"])
    store = ready.store(tmp_path / "both")
    run(ready, store=store)
    assert store.found == 6


def test_names_with_a_placement():
    assert [who.policy for who in make_policy_configs("las@fgd,sjf", "none", placements=["best", "fgd"])][
        :3
    ] == [
        "las@fgd",
        "sjf@best",
        "sjf@fgd",
    ]
    assert policy_and_placement("multifactor:age=500") == ("multifactor:age=500", None)
    assert policy_and_placement("agent:a/b.json@fgd") == ("agent:a/b.json", "fgd")
    for make in (
        lambda: policy_and_placement("las@fdg"),
        lambda: make_policy_configs("las", "none", "none", ["fdg"]),
    ):
        with pytest.raises(UnknownNameError, match="did you mean 'fgd'"):
            make()
    with pytest.raises(UnknownNameError, match="unknown policy 'lsa'"):
        make_policy_configs("lsa@fgd", "none")
    with pytest.raises(InputError, match="list of policies is empty"):
        make_policy_configs(" ,", "none")


def test_a_machine_that_lacks_the_placement_is_told_before_anything_runs():
    who = make_policy_configs("fcfs", "none", placements=["first", "balance"])
    with pytest.raises(UnknownNameError, match="on 'gpu-mixed' 'balance'"):
        prepare(ComparisonPlan((Scenario(TRACE),), who))
    who = make_policy_configs("fcfs", "easy", placements=["first", "fgd"])
    with pytest.raises(UnknownNameError, match="on '8 nodes' 'fgd'"):
        prepare(ComparisonPlan((Scenario("lublin:20:8"),), who))


def test_an_agent_at_several_placements(tmp_path):
    """It is called so, and a changed file is another agent."""
    from kilowait.agents.linear_gpu.agent import policy_agent

    path = tmp_path / "agent.json"
    for number, order in enumerate(("sjf", "fcfs", "fcfs")):
        policy_agent(order, 56).save(path)
        ready = ready_with(f"agent:{path}", ["first", "fgd"])
        store = ready.store(tmp_path / "both")
        assert run(ready, store=store)[0].labels == ("agent@first", "agent@fgd")
        assert store.found == (2 if number == 2 else 0)


def test_who_predicts_has_no_use_for_perfect_estimates():
    who = make_policy_configs("fcfs,easy++", "easy")
    assert [(each.policy, each.kind) for each in who] == [
        ("fcfs", "rule"),
        ("easy++", "rule"),
        ("fcfs", "clairvoyant"),
    ]
