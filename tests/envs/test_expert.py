"""Look-ahead expert: choices against an exhaustive search, and demonstrations."""

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import kilowait as kw
from kilowait.cluster import Cluster
from kilowait.engine.interface import Choice
from kilowait.engine.settings import Settings
from kilowait.engine.simulator import Simulator
from kilowait.envs.batch_env import BatchVectorEnv, DecisionSettings
from kilowait.envs.expert import LookAheadExpert, record_demonstrations
from kilowait.envs.kernels.step import NOTHING
from kilowait.envs.lookahead import LookAhead
from kilowait.errors import InputError
from tests.envs.workloads import crowded

MACHINE = Cluster.from_nodes(16)
NOW_S = 10.0


def rush(seed: int, waiting: int = 9) -> kw.JobTable:
    """Some jobs run, and at 10 s others arrive together."""
    random = np.random.default_rng(seed)
    runs, n = 4, 4 + waiting
    return kw.JobTable(
        job_id=np.arange(n),
        submit_s=[*range(runs), *[NOW_S] * waiting],
        runtime_s=random.integers(20, 400, n),
        estimate_s=random.integers(2, 60, n) * 10,
        nodes=np.concatenate([random.integers(2, 5, runs), random.integers(1, 17, waiting)]),
    )


def future(jobs, first: int, depth: int) -> float:
    """Cost of the jobs waiting at 10 s if `first` is chosen and saf decides the rest; through the public steps."""
    jobs = jobs.with_columns(runtime_s=jobs["estimate_s"])
    area = jobs["nodes"] * jobs["estimate_s"]
    simulator = Simulator(jobs, MACHINE, Settings("easy"))
    start = np.full(len(jobs), np.nan)
    began = 0
    while began < depth and (view := simulator.advance()) is not None:
        waiting = sorted(view.waiting["number"].tolist(), key=lambda job: (area[job], job))
        if view.now_s == NOW_S:
            waiting = [first, *(job for job in waiting if job != first)]
        reserved = False
        for job in waiting:
            if simulator.can_start(job):
                simulator.apply(Choice.start(job))
                start[job] = view.now_s
                began += view.now_s >= NOW_S
            elif not reserved:
                simulator.apply(Choice.reserve(job))
                reserved = True
        now_s = view.now_s
    here = jobs["submit_s"] == NOW_S
    wait = np.where(np.isnan(start), now_s, start)[here] - NOW_S
    run = jobs["estimate_s"][here]
    return float(np.sum(np.maximum((wait + run) / np.maximum(run, 10.0), 1.0)))


@pytest.mark.parametrize("depth", [3, 1000])
def test_choice_matches_exhaustive_search(depth):
    other = 0
    for seed in range(80):
        jobs = rush(seed)
        vec = BatchVectorEnv(
            1, jobs=jobs, cluster=MACHINE, episode_jobs=len(jobs), autoreset_mode=AutoresetMode.DISABLED
        )
        vec.reset()
        if vec.simulator.states.clock["now"][0, 0] != NOW_S:  # no waiting job fits then
            continue
        expert = LookAheadExpert(LookAhead(depth=depth), vec.simulator, jobs, MACHINE)
        chosen = int(vec.simulator.buffers.slots[0, expert.choose()[0]])
        candidates = np.arange(4, len(jobs))
        costs = {job: future(jobs, job, depth) for job in candidates.tolist()}
        assert costs[chosen] == pytest.approx(min(costs.values()))
        by_area = min(candidates, key=lambda job: jobs["nodes"][job] * jobs["estimate_s"][job])
        other += costs[chosen] < costs[int(by_area)] - 1e-9
        vec.close()
    assert other > 5


def demonstrations(lookahead, copies=4, **arguments):
    decision_settings = DecisionSettings(queue_window=24, **arguments)
    return record_demonstrations(
        crowded(200, 3), MACHINE, decision_settings, lookahead, 6, seed=1, episode_jobs=50, copies=copies
    )


@pytest.mark.parametrize("backfill_order", ["saf", "agent"])
def test_demonstrations_of_width_one_are_the_base_policy(backfill_order):
    observation = demonstrations(LookAhead("sjf", width=1), backfill_order=backfill_order)
    rows = np.arange(len(observation["action"]))
    assert (observation["mask"][rows, observation["action"]] == 1).all()
    length = np.where(observation["mask"] == 1, observation["jobs"][:, :, 0], np.inf)
    shortest = length == length.min(axis=1, keepdims=True)
    waited = np.where(shortest, observation["jobs"][:, :, 4], -np.inf)  # ties go to the job submitted first
    assert shortest[rows, observation["action"]].all() and (shortest.sum(axis=1) > 1).any()
    assert np.array_equal(waited[rows, observation["action"]], waited.max(axis=1))
    assert sorted(set(observation["episode"].tolist())) == list(range(6))
    wide = demonstrations(LookAhead("sjf"), backfill_order=backfill_order)
    assert not np.array_equal(wide["action"], observation["action"])


def test_demonstrations_are_the_same_on_any_number_of_copies():
    one, many = demonstrations(LookAhead(), copies=1), demonstrations(LookAhead(), copies=6, graph=True)
    assert set(many) - set(one) == {"edges"} and len(many["edges"]) == len(many["action"])
    order = np.argsort(many["episode"], kind="stable")
    assert all(np.array_equal(one[name], many[name][order]) for name in one)


def test_wait_bound_is_respected_and_hold_is_never_chosen():
    longest = {}
    for bound in (600.0, np.inf):
        observation = demonstrations(LookAhead(), max_wait_s=bound, hold=True)
        rows = np.arange(len(observation["action"]))
        assert (observation["mask"][rows, observation["action"]] == 1).all() and (observation["action"] < 24).all()
        share = observation["jobs"][:, :, 4][observation["mask"][:, :24] == 1]  # wait / (wait + 1 h)
        longest[bound] = float(np.max(3600 * share / (1 - share)))
    assert longest[600.0] <= 600.5 < longest[np.inf]  # jobs that have waited longer start without a decision


def test_expert_skips_unselected_copies_and_does_not_change_the_state():
    vec = BatchVectorEnv(3, jobs=crowded(200, 3), cluster=MACHINE, episode_jobs=50)
    vec.reset(seed=0)
    before = vec.snapshot()
    expert = LookAheadExpert(LookAhead(), vec.simulator, vec.jobs, MACHINE, threads=2)
    actions = expert.choose(np.array([True, False, True]))
    assert actions[1] == NOTHING and np.array_equal(expert.choose()[[0, 2]], actions[[0, 2]])
    after = vec.snapshot()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    expert.close()
    vec.close()


def test_input_errors():
    with pytest.raises(InputError, match="at least 1"):
        record_demonstrations(crowded(60, 0), MACHINE, DecisionSettings(), LookAhead(), 0, seed=0)
