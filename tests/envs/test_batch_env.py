"""`kilowait/Batch-v0`: decisions from outside the engine give the same runs."""

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import kilowait as kw
from kilowait.cluster import Cluster
from kilowait.envs.batch_env import BatchVectorEnv, DecisionSettings
from kilowait.envs.observation_spec import FEATURES, SUMMARY
from kilowait.envs.reward_terms import TERMS
from kilowait.errors import InputError, UnknownNameError
from tests.envs.workloads import crowded, planned, run_window, started, two_groups

MACHINE = Cluster.from_nodes(16)


def batch(jobs=None, copies=1, cluster=MACHINE, episode_jobs=60, **arguments):
    arguments.setdefault("autoreset_mode", AutoresetMode.DISABLED if copies == 1 else AutoresetMode.SAME_STEP)
    return BatchVectorEnv(
        copies, jobs=crowded(200, 0) if jobs is None else jobs, cluster=cluster, episode_jobs=episode_jobs, **arguments
    )


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("cluster", [MACHINE, two_groups()], ids=lambda cluster: cluster.name)
@pytest.mark.parametrize("backfill", ["none", "easy", 2])
def test_policy_run_through_env_matches_engine_log(seed, cluster, backfill):
    jobs = crowded(90, seed)
    first = 7 * seed % 30
    window = jobs[first : first + 60]
    saf = jobs["estimate_s"] * jobs["nodes"]
    agent_env = batch(jobs, cluster=cluster, backfill=backfill, backfill_order="agent")
    assert np.array_equal(
        run_window(agent_env, saf, first), started(window, cluster, policy="saf", backfill=backfill), equal_nan=True
    )
    ordered = batch(jobs, cluster=cluster, backfill=backfill, backfill_order="sjf")
    order = None if backfill == "none" else "sjf"
    assert np.array_equal(
        run_window(ordered, saf, first),
        started(window, cluster, policy="saf", backfill=backfill, backfill_order=order),
        equal_nan=True,
    )


@pytest.mark.parametrize("at_limit", ["extend", "kill"])
@pytest.mark.parametrize("overrun", ["double", "steps", "quantile"])
@pytest.mark.parametrize("backfill", ["easy", 2])
def test_policy_run_through_env_matches_engine_log_with_planned_run_times(at_limit, overrun, backfill):
    jobs = planned(crowded(90, 5), 5)
    saf = jobs["estimate_s"] * jobs["nodes"]
    arguments = {"backfill": backfill, "at_limit": at_limit, "overrun": overrun}
    agent_env = batch(jobs, backfill_order="agent", **arguments)
    engine_log = started(jobs[20:80], MACHINE, policy="saf", **arguments)
    assert np.array_equal(run_window(agent_env, saf, 20), engine_log, equal_nan=True)
    plain = started(crowded(90, 5)[20:80], MACHINE, policy="saf", **arguments)
    assert not np.array_equal(plain, engine_log)


@pytest.mark.parametrize("backfill_order", ["agent", "saf"])
@pytest.mark.parametrize("term", TERMS)
def test_return_equals_episode_metric(term, backfill_order):
    jobs = crowded(120, 3)
    vec = batch(jobs, reward={term: 2.0}, sla_s=900.0, backfill_order=backfill_order)
    vec.reset(seed=5)
    first = int(vec.simulator.buffers.copies["first"][0])
    random = np.random.default_rng(0)
    total, terms, over = 0.0, np.zeros(len(TERMS)), False
    while not over:
        allowed = np.flatnonzero(vec.action_masks()[0])
        _, reward, ended, _, infos = vec.step(np.array([random.choice(allowed)]))
        total += reward[0]
        terms += infos["terms"][0]
        over = bool(ended[0])
    window = jobs[first : first + 60]
    start = vec.simulator.states.job_state["start_s"][0]
    wait = start - window["submit_s"]
    slowdown = np.maximum((wait + window["runtime_s"]) / np.maximum(window["runtime_s"], 10.0), 1.0)
    users = window["user"]
    metrics = {
        "slowdown": slowdown.mean() - 1,
        "wait": wait.mean() / 3600,
        "sla": (wait > 900).mean(),
        "fairness": np.mean([slowdown[users == user].mean() for user in np.unique(users)]) - 1,
        "backlog": np.mean(wait * window["nodes"] * window["runtime_s"]) / MACHINE.nodes / 3600**2,
    }
    assert terms == pytest.approx([metrics[name] for name in TERMS])
    assert total == pytest.approx(-2.0 * metrics[term])
    assert infos["episode"]["r"][0] == pytest.approx(total)
    assert infos["episode"]["metric"][0] == pytest.approx(-total)
    if term == "slowdown":  # equals the metric of `kilowait.metrics`
        replayed = kw.simulate(window, MACHINE, "saf", "easy")
        vec = batch(jobs, backfill_order="agent")
        run_window(vec, jobs["estimate_s"] * jobs["nodes"], first)
        assert vec.simulator.buffers.finished[0, 3] == pytest.approx(kw.metrics(replayed)["mean_bsld"] - 1)


def test_vectorized_copies_match_single_environments():
    jobs = crowded(300, 1)
    many = batch(jobs, copies=7, threads=2, autoreset_mode=AutoresetMode.NEXT_STEP)
    first = np.array([0, 11, 80, 140, 200, 239, 240])
    observation, _ = many.reset(options={"first": first})
    singles = [batch(jobs) for _ in first]
    alone = [env.reset(options={"first": at})[0] for env, at in zip(singles, first, strict=True)]
    ended_copies = np.zeros(7, bool)
    random = np.random.default_rng(2)
    for _ in range(150):
        for i in np.flatnonzero(~ended_copies):
            assert all(np.array_equal(observation[name][i], alone[i][name][0]) for name in observation)
        actions = np.array([random.choice(np.flatnonzero(m)) if m.any() else 0 for m in observation["mask"]])
        observation, reward, over, _, _ = many.step(actions)
        for i in np.flatnonzero(~ended_copies):
            alone[i], r, o, _, _ = singles[i].step(actions[i : i + 1])
            assert (r[0], o[0]) == (reward[i], over[i])
        ended_copies |= over
    assert ended_copies.all()


def test_episodes_are_reproducible_on_any_number_of_threads():
    def run(threads):
        vec = batch(copies=5, threads=threads)
        observation, _ = vec.reset(seed=3)
        outputs = [observation["jobs"].copy()]
        for i in range(80):
            observation, reward, *_ = vec.step((observation["mask"].sum(axis=1) * 0.37 * (i % 3)).astype(int))
            outputs += [observation["jobs"], reward]
        return np.concatenate([part.ravel() for part in outputs])

    assert np.array_equal(run(1), run(3))


def test_autoreset_modes():
    for mode in AutoresetMode:
        vec = batch(copies=2, autoreset_mode=mode, episode_jobs=30)
        observation, _ = vec.reset(seed=1)
        over = np.zeros(2, bool)
        while not over.any():
            before = observation
            observation, reward, over, _, infos = vec.step(before["mask"].argmax(axis=1))
        i = int(over.argmax())
        assert infos["_episode"][i] and infos["episode"]["l"][i] > 0
        if mode is AutoresetMode.SAME_STEP:
            assert observation["mask"][i].any() and not infos["final_obs"]["mask"][i].any()
        else:
            assert not observation["mask"][i].any() and not observation["jobs"][i].any()
        if mode is AutoresetMode.NEXT_STEP:
            observation, reward, over, _, _ = vec.step(np.zeros(2, int))
            assert reward[i] == 0 and not over[i] and observation["mask"][i].any()
        if mode is AutoresetMode.DISABLED:
            with pytest.raises(gymnasium.error.ResetNeeded):
                vec.step(np.zeros(2, int))
            saved = observation["jobs"][1 - i]
            observation, _ = vec.reset(options={"reset_mask": over})
            assert observation["mask"][i].any() and np.array_equal(observation["jobs"][1 - i], saved)


def test_reset_in_mid_episode_clears_the_observation():
    vec = batch()
    first, _ = vec.reset(options={"first": 0})
    while vec.simulator.buffers.copies["shown"][0] < 20:
        vec.step(vec.simulator.buffers.mask.argmax(axis=1))
    again, _ = vec.reset(options={"first": 0})
    assert all(np.array_equal(first[name], again[name]) for name in first)


def test_observation_values():
    jobs = kw.JobTable(
        job_id=[1, 2, 3],
        submit_s=[0, 3600, 7200],
        runtime_s=[36000, 60, 60],
        estimate_s=[36000, 3600, 1800],
        nodes=[12, 8, 4],
        user=[1, 2, 2],
    )
    vec = batch(jobs, episode_jobs=3, graph=True, queue_window=4)
    observation, _ = vec.reset()
    # At 7,200 s: 12 of 16 nodes taken, job 2 does not fit and job 3 does.
    rows = [dict(zip(FEATURES, row.tolist(), strict=True)) for row in observation["jobs"][0]]
    assert observation["mask"][0].tolist() == [1, 1, 0, 0]
    assert rows[0]["length"] == pytest.approx(0) and rows[1]["length"] == pytest.approx(np.log(0.5) / 3)
    assert rows[0]["width"] == pytest.approx(np.log(8) / np.log(17)) and rows[0]["share"] == 0.5
    assert rows[0]["area"] == pytest.approx(np.log1p(0.5) / 3)
    assert (rows[0]["hour"], rows[0]["patience"], rows[1]["hour"]) == (0.5, 0.5, 0.0)
    assert rows[0]["day"] == pytest.approx(3600 / 90000)
    assert (rows[0]["fits"], rows[1]["fits"]) == (0, 1)
    assert (rows[0]["spare"], rows[1]["spare"]) == (-0.25, 0.0)
    assert (rows[0]["place"], rows[1]["place"]) == (0.0, 0.5)
    assert not observation["jobs"][0, 2:].any()
    summary = dict(zip(SUMMARY, observation["summary"][0].tolist(), strict=True))
    assert summary["free"] == 0.25 and summary["queue"] == pytest.approx(np.log(3) / 5)
    assert summary["backlog"] == pytest.approx(np.log1p((8 + 2) / 16) / 3)
    assert summary["release"] == pytest.approx(28800 / 32400) and summary["running"] == pytest.approx(np.log(2) / 5)
    assert summary["day_sin"] == pytest.approx(np.sin(2 * np.pi / 12), abs=1e-6)
    assert observation["edges"][0, 0, 1] == 1 | 2  # same user, and both do not fit; an hour apart
    assert not observation["edges"][0, 2:].any()


def test_more_jobs_than_slots_shows_the_oldest_and_the_smallest():
    n = 40
    jobs = kw.JobTable(
        job_id=range(n + 1),
        submit_s=[0] + [1] * n,
        runtime_s=[1000] + [100] * n,
        estimate_s=[1000, *range(400, 400 - 5 * n, -5)],
        nodes=[15] + [1] * n,
    )
    vec = batch(jobs, episode_jobs=n + 1, queue_window=8)
    vec.reset()
    assert vec.simulator.buffers.slots[0].tolist() == [1, 2, 3, 4, 40, 39, 38, 37]
    assert vec.simulator.buffers.summary[0, list(SUMMARY).index("hidden")] == pytest.approx((n - 8) / n)


def test_no_job_starts_before_an_overdue_job():
    jobs = crowded(200, 4)
    bound = 1500.0
    vec = batch(jobs, episode_jobs=120, max_wait_s=bound, backfill_order="agent")
    vec.reset(options={"first": 0})
    over, guarded = False, 0
    longest_first = -jobs["nodes"] * jobs["estimate_s"]  # starves small jobs
    while not over:
        a = vec.simulator.buffers
        shown = int(a.copies["shown"][0])
        numbers = a.slots[0, :shown]
        if int(a.copies["phase"][0]) == 1:
            waits = vec.simulator.states.clock["now"][0, 0] - jobs["submit_s"][numbers]
            allowed = np.flatnonzero(a.mask[0])
            if (waits > bound).any():
                guarded += 1
                assert allowed.tolist() == [int(np.argmax(waits > bound))]
        scores = np.where(a.mask[0, :shown] == 1, longest_first[numbers], np.inf)
        over = bool(vec.step(np.array([int(np.argmin(scores))]))[2][0])
    worst = np.nanmax(vec.simulator.states.job_state["start_s"][0] - jobs["submit_s"][:120])
    free = batch(jobs, episode_jobs=120, backfill_order="agent")
    assert worst < np.nanmax(run_window(free, longest_first, 0) - jobs["submit_s"][:120])


def test_hold_advances_time_and_every_episode_ends():
    vec = batch(hold=True, copies=1)
    vec.reset(seed=0)
    steps, over = 0, False
    while not over:
        held = vec.action_masks()[0, -1]
        action = vec.observation_spec.actions - 1 if held else int(vec.action_masks()[0].argmax())
        over = bool(vec.step(np.array([action]))[2][0])
        steps += 1
    start = vec.simulator.states.job_state["start_s"][0]
    assert np.isfinite(start).all() and (start >= vec.simulator.states.jobs["submit_s"][0]).all()


def test_a_forbidden_action_is_replaced_and_counted():
    vec = batch()
    vec.reset(seed=0)
    over = False
    while not over:
        *_, infos = stepped = vec.step(np.array([vec.observation_spec.actions - 1]))
        over = bool(stepped[2][0])
    assert infos["episode"]["invalid"][0] == infos["episode"]["l"][0] > 0


def test_restored_snapshot_continues_identically():
    def steps(vec, count, observation):
        outputs = []
        for _ in range(count):
            observation, reward, *_ = vec.step(observation["mask"].sum(axis=1) // 2)
            outputs.append((observation["jobs"].tobytes(), reward.tobytes()))
        return outputs, observation

    one = batch(copies=3)
    observation, _ = one.reset(seed=9)
    _, observation = steps(one, 37, observation)
    saved = one.snapshot()
    after, _ = steps(one, 120, observation)
    other = batch(copies=3)
    assert steps(other, 120, other.restore(saved))[0] == after
    with pytest.raises(InputError, match="another size"):
        batch(copies=2).restore(saved)


def test_arrival_rate_scales_submissions():
    vec = batch()
    vec.set_arrival_rate(4.0)
    vec.reset(options={"first": 0})
    arrivals = vec.simulator.states.job_state["earliest_s"][0]
    given = crowded(200, 0)["submit_s"][:60]
    assert arrivals - arrivals[0] == pytest.approx((given - given[0]) / 4)
    with pytest.raises(InputError, match="above 0"):
        vec.set_arrival_rate(0)


def test_input_errors():
    with pytest.raises(InputError, match="the log 200"):
        batch(episode_jobs=300)
    with pytest.raises(InputError, match="conservative"):
        batch(backfill="conservative")
    with pytest.raises(InputError, match="wfp3.*changes during the run"):
        batch(backfill_order="wfp3")
    with pytest.raises(UnknownNameError, match="slowdown"):
        batch(reward={"slowdwn": 1})
    with pytest.raises(InputError, match="whole numbers from 0 to 127"):
        vec = batch()
        vec.reset()
        vec.step(np.array([128]))
    with pytest.raises(InputError, match="Gpu-v0"):
        batch(cluster=Cluster.preset("gpu-mixed"))
    with pytest.raises(InputError, match="queue_window is 0.*give at least 1"):
        DecisionSettings(queue_window=0)
