"""Look-ahead policy: equals the base policy at width 1, never uses true run times, and improves on the base policy."""

import numpy as np
import pytest

import kilowait as kw
from kilowait.cluster import Cluster, Outage, PowerControls
from kilowait.engine.policy import Policy, RunInputs
from kilowait.engine.settings import Settings
from kilowait.engine.simulator import Simulator
from kilowait.envs.batch_env import external_policy
from kilowait.envs.lookahead import LookAhead, run_for
from kilowait.errors import InputError, UnknownNameError
from kilowait.experiments.policies import resolve_policy
from tests.envs.workloads import crowded, planned, two_groups

MACHINE = Cluster.from_nodes(16)


def starts(jobs, cluster, policy, backfill="easy", **settings):
    return kw.simulate(jobs, cluster, policy, backfill, **settings).jobs()["start_s"]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("cluster", [MACHINE, two_groups()], ids=lambda cluster: cluster.name)
@pytest.mark.parametrize("backfill", ["none", "easy", 2])
@pytest.mark.parametrize("base", ["saf", "f1", "wfp3", "random"])
def test_width_one_is_the_base_policy(seed, cluster, backfill, base):
    jobs = crowded(120, seed)
    lookahead_starts = starts(jobs, cluster, LookAhead(base, width=1), backfill)
    assert np.array_equal(lookahead_starts, starts(jobs, cluster, base, backfill))
    if backfill == "easy":  # wider look-ahead gives another schedule
        assert not np.array_equal(lookahead_starts, starts(jobs, cluster, LookAhead(base, width=8), backfill))


@pytest.mark.parametrize("overrun", ["double", "steps", "quantile"])
def test_width_one_is_the_base_policy_with_planned_run_times(overrun):
    jobs = planned(crowded(120, 3), 3)
    base_starts = starts(jobs, MACHINE, "saf", overrun=overrun)
    assert np.array_equal(starts(jobs, MACHINE, LookAhead("saf", width=1), overrun=overrun), base_starts)
    lookahead_starts = starts(jobs, MACHINE, LookAhead("saf", width=8), overrun=overrun)
    assert np.isfinite(lookahead_starts).all() and not np.array_equal(lookahead_starts, base_starts)


def test_simulated_futures_use_planned_run_times():
    """As `test_improves_on_saf_with_two_jobs_in_the_wrong_order`, but only planned run times show which job is
    short."""
    jobs = kw.JobTable(
        job_id=[1, 2, 3],
        submit_s=[0, 1, 1],
        runtime_s=[10, 100, 60],
        estimate_s=[10, 500, 500],
        planned_s=[10, 100, 60],
        nodes=[16, 9, 16],
    )
    assert starts(jobs, MACHINE, "saf").tolist() == [0, 10, 110]
    assert starts(jobs, MACHINE, LookAhead("saf", width=2)).tolist() == [0, 70, 10]


def test_dependencies_and_cancellations_are_simulated():
    jobs = crowded(90, 5)
    n = len(jobs)
    after = np.full(n, -1)
    after[10::7] = jobs["job_id"][3 : 3 + len(after[10::7])]
    jobs = jobs.with_columns(
        after_id=after,
        think_s=np.full(n, 5.0),
        cancel_s=np.where(np.arange(n) % 9 == 4, jobs["submit_s"] + 100, np.inf),
    )
    base_starts = kw.simulate(jobs, MACHINE, "sjf", "easy")
    lookahead_starts = kw.simulate(jobs, MACHINE, LookAhead("sjf", width=1), "easy")
    assert np.array_equal(lookahead_starts.jobs()["start_s"], base_starts.jobs()["start_s"], equal_nan=True)
    assert (lookahead_starts.job_outcome == base_starts.job_outcome).all() and len(
        np.unique(base_starts.job_outcome)
    ) > 1
    wide = kw.simulate(jobs, MACHINE, LookAhead("sjf"), "easy")
    wait = wide.jobs()["start_s"] - wide.eligible_s
    assert np.nanmin(wait) >= 0 and (np.isfinite(wait) == (wide.job_outcome != base_starts.job_outcome[4])).all()


def test_improves_on_saf_with_two_jobs_in_the_wrong_order():
    jobs = kw.JobTable(
        job_id=[1, 2, 3], submit_s=[0, 1, 1], runtime_s=[10, 100, 60], estimate_s=[10, 100, 60], nodes=[2, 1, 2]
    )
    machine = Cluster.from_nodes(2)
    # Slowdowns of jobs 2 and 3: the small one first 1.09 + 2.82, the short one first 1.69 + 1.15.
    assert starts(jobs, machine, "saf").tolist() == [0, 10, 110]
    assert starts(jobs, machine, LookAhead("saf", width=2)).tolist() == [0, 70, 10]
    # Waits: 9 + 109 against 69 + 9.
    assert starts(jobs, machine, LookAhead("saf", objective="wait")).tolist() == [0, 70, 10]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("base", ["saf", "lxf"])
def test_unknown_run_times_do_not_affect_decisions(seed, base):
    jobs, policy = crowded(150, seed), LookAhead(base, width=6)
    log = kw.simulate(jobs, MACHINE, policy, "easy").jobs()
    split_s = float(np.median(log["start_s"]))
    later = log["start_s"] + jobs["runtime_s"] > split_s
    random = np.random.default_rng(seed)
    other_run_times = np.maximum(split_s - log["start_s"], 0) + random.integers(1, 4000, len(jobs))
    altered = jobs.with_columns(runtime_s=np.where(later, other_run_times, jobs["runtime_s"]))
    again = starts(altered, MACHINE, policy)
    before_split = log["start_s"] <= split_s
    assert np.array_equal(again[before_split], log["start_s"][before_split]) and (again[~before_split] > split_s).all()
    assert not np.array_equal(again, log["start_s"])  # the change has an effect later


def test_runs_are_deterministic_and_respect_capacity():
    for cluster in (MACHINE, two_groups()):
        jobs = crowded(200, 8)
        first = kw.simulate(jobs, cluster, LookAhead(width=12, depth=5), 2)
        again = kw.simulate(jobs, cluster, LookAhead(width=12, depth=5), 2)
        assert np.array_equal(first.start_s, again.start_s) and np.array_equal(first.job, again.job)
        nodes = jobs["nodes"][first.job]
        for at in first.start_s:
            running = (first.start_s <= at) & (at < first.end_s)
            used = np.bincount(first.group[running], nodes[running], len(cluster.groups))
            assert (used <= [group.nodes for group in cluster.groups]).all()


@pytest.mark.parametrize("width", [2, 5, 20])
@pytest.mark.parametrize("depth", [1, 30])
def test_work_is_bounded_by_width_and_depth(width, depth):
    simulator = Simulator(crowded(200, 2), MACHINE, Settings("easy"), policy=external_policy())
    state = simulator.state._replace(need=simulator.state.need.copy())
    policy = LookAhead(width=width, depth=depth)
    work_arrays = policy.work_arrays(state)
    run_for(state, work_arrays)(state, work_arrays, *policy.scoring(simulator.table, MACHINE))
    plan = work_arrays.plan[0]
    assert int(state.clock["segments"][0]) == 200
    assert 0 < plan.decisions < plan.simulations <= width * plan.decisions
    assert plan.starts < plan.simulations * (depth + 2 * 16)  # one pass starts no more than 16 jobs


def test_lookahead_is_selected_by_name():
    policy = LookAhead.from_text("lookahead:base=sjf:width=3:depth=9:objective=wait")
    assert policy == LookAhead("sjf", 3, 9, "wait") and isinstance(policy, Policy)
    assert LookAhead.from_text(policy.name) == policy
    log = kw.simulate(crowded(40, 1), MACHINE, policy, "easy")
    assert log.run["policy"] == policy.name and log.run["backfill"] == "easy"
    assert len(kw.simulate(crowded(5, 1)[:0], MACHINE, policy, "easy")) == 0
    assert resolve_policy("lookahead:width=3") == LookAhead(width=3)


def test_input_errors():
    jobs = crowded(20, 0)
    for text, message in (
        ("lookahead:width", "not written as name=value"),
        ("lookahead:width=x", "not a whole number"),
        ("lookahead:width=0", "from 1 to"),
        ("lookahead:base=las", "cannot simulate 'las'"),
        ("lookahead:base=fair_share", "cannot simulate 'fair_share'"),
        ("lookahead:base=easy+", "cannot simulate 'easy.'"),
        ("saf", "is not a look-ahead policy"),
    ):
        with pytest.raises(InputError, match=message):
            LookAhead.from_text(text)
    with pytest.raises(UnknownNameError, match="width"):
        LookAhead.from_text("lookahead:widht=3")
    with pytest.raises(UnknownNameError, match="bsld"):
        LookAhead(objective="slowdown")
    with pytest.raises(InputError, match="conservative"):
        kw.simulate(jobs, MACHINE, LookAhead(), "conservative")
    with pytest.raises(InputError, match="schedule_per='instant'"):
        kw.simulate(jobs, MACHINE, LookAhead(), "easy", schedule_per="event")
    with pytest.raises(InputError, match="does not simulate power controls"):
        kw.simulate(jobs, MACHINE, LookAhead(), "easy", power_controls=PowerControls())
    with pytest.raises(InputError, match="does not simulate power controls"):
        kw.simulate(jobs.with_columns(hold_until_s=np.full(20, 1e6)), MACHINE, LookAhead(), "easy")
    name = MACHINE.groups[0].name
    down = Cluster(groups=MACHINE.groups, outages=[Outage(name, start_s=3, end_s=9, nodes=6)])
    with pytest.raises(InputError, match="outages"):
        kw.simulate(jobs, down, LookAhead(), "easy")
    with pytest.raises(InputError, match=r"has node-level \(GPU\) groups"):
        LookAhead().run(RunInputs(jobs, Cluster.preset("gpu-mixed"), Settings("easy")))

    @kw.policy
    def nonsense(job, now):
        return float("nan")

    with pytest.raises(InputError, match="'nonsense'.*score NaN"):
        kw.simulate(jobs, MACHINE, LookAhead(nonsense), "easy")
