"""`kilowait/Gpu-v0`: decisions from outside the GPU engine give the same runs."""

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import kilowait as kw
from kilowait.cluster import Cluster, NodeGroup
from kilowait.engine.gpu.settings import GpuSettings
from kilowait.engine.gpu.simulator import GpuSimulator
from kilowait.envs.gpu_env import GpuDecisionSettings, external_gpu_policy
from kilowait.envs.reward_terms import GPU_TERMS as TERMS
from kilowait.errors import InputError, UnknownNameError
from kilowait.evaluation import gpu_metrics
from kilowait.jobs.execution_log import Outcome
from tests.envs.gpu_workloads import (
    crowded,
    gpu_env,
    log_of,
    machine,
    part_of,
    run_random_episode,
    run_window,
    same_segments,
    skip_settings,
    speeds_of,
    state_of,
)

COSTLY = GpuSettings(grace_s=7.0, checkpoint_write_s=11.0, checkpoint_load_s=5.0, checkpoint_s=60.0)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("types", ["any", "fastest"])
@pytest.mark.parametrize("placement", ["first", "consolidate", "best", "random"])
def test_policy_run_through_env_matches_engine_log(seed, types, placement):
    jobs = crowded(90, seed)
    speeds = speeds_of(jobs, seed) if seed % 2 else None
    first = 7 * seed % 30
    window, window_speeds = jobs[first : first + 60], part_of(speeds, slice(first, first + 60))
    gpu_settings = skip_settings(placement=placement, gpu_type_order=types, on_oversized="drop")
    vec = gpu_env(jobs, speeds=speeds, gpu_settings=gpu_settings)
    run_window(vec, lambda job_state, numbers: job_state["estimate_s"][numbers], first)
    assert same_segments(
        log_of(vec, window_speeds),
        kw.simulate(window, machine(), "sjf", "skip", settings=gpu_settings, speeds=window_speeds, gpu_speeds="none"),
    )
    run_window(vec, lambda job_state, numbers: job_state["estimate_s"][numbers] - job_state["done"][numbers], first)
    assert same_segments(
        log_of(vec, window_speeds),
        kw.simulate(window, machine(), "srtf", "skip", settings=gpu_settings, speeds=window_speeds, gpu_speeds="none"),
    )


@pytest.mark.parametrize("placement", ["fgd", "capacity"])
def test_placements_that_use_the_job_mix(placement):
    jobs = crowded(60, 3)
    vec = gpu_env(jobs, gpu_settings=skip_settings(placement=placement))
    for _ in range(2):  # caches of the first episode must not be used in the second
        run_window(vec, lambda job_state, numbers: job_state["estimate_s"][numbers], 0)
        assert same_segments(
            log_of(vec), kw.simulate(jobs, machine(), "sjf", "skip", placement=placement, gpu_speeds="none")
        )


def test_scheduling_rounds():
    jobs = crowded(60, 4)
    gpu_settings = skip_settings(round_interval_s=90.0, rounds=True)
    vec = gpu_env(jobs, gpu_settings=gpu_settings)
    run_window(vec, lambda job_state, numbers: job_state["estimate_s"][numbers], 0)
    assert same_segments(
        log_of(vec), kw.simulate(jobs, machine(), "sjf", "skip", settings=gpu_settings, gpu_speeds="none")
    )


@pytest.mark.parametrize("costs", [{}, {"checkpoint_write_s": 11.0, "checkpoint_load_s": 5.0, "checkpoint_s": 60.0}])
def test_migration_after_a_pass_matches_the_engine(costs):
    jobs = crowded(60, 6)
    speeds = speeds_of(jobs, 6)
    gpu_settings = skip_settings(migrate=True, gpu_type_order="fastest", **costs)
    vec = gpu_env(jobs, speeds=speeds, gpu_settings=gpu_settings, max_preemptions=40)
    for _ in range(2):
        run_window(vec, lambda job_state, numbers: job_state["estimate_s"][numbers], 0)
        log = kw.simulate(jobs, machine(), "sjf", "skip", settings=gpu_settings, speeds=speeds)
        assert same_segments(log_of(vec, speeds), log) and (log.outcome == Outcome.MIGRATED).sum() > 3
    vec = gpu_env(jobs, speeds=speeds, gpu_settings=gpu_settings, max_preemptions=1)
    run_window(vec, lambda job_state, numbers: job_state["estimate_s"][numbers], 0)
    log = log_of(vec, speeds)
    assert np.bincount(log.job).max() == 2 and (log.job_outcome == Outcome.COMPLETED).all()


def test_mask_allows_exactly_the_jobs_that_fit():
    vec = gpu_env(crowded(150, 5), hold=True, speeds=speeds_of(crowded(150, 5)))
    vec.reset(seed=1)
    random = np.random.default_rng(0)
    simulator = GpuSimulator(vec.jobs[:60], vec.cluster, skip_settings(), policy=external_gpu_policy())
    types, choices, counts = 3, vec.observation_spec.choices, np.zeros(2, int)
    for _ in range(40):
        a = vec.simulator.buffers
        for slot in range(int(a.copies["shown"][0])):
            for choice in range(1 + types):
                simulator._state = state_of(vec)
                fits = simulator.start(int(a.slots[0, slot]), choice - 1)
                assert fits == a.mask[0, slot * choices + choice]
                counts[int(fits)] += 1
        if vec.step(np.array([random.choice(np.flatnonzero(a.mask[0]))]))[2][0]:
            break
    assert (counts > 100).all()


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"hold": True, "placements": ("consolidate", "worst"), "speeds": True},
        {"preempt": True, "gpu_settings": COSTLY, "speeds": True},
        {"preempt": True, "by_type": False, "victims": 3, "max_preemptions": 1},
        {
            "preempt": True,
            "gpu_settings": GpuSettings(checkpoint_s=np.inf, min_run_before_preempt_s=30.0),
            "max_wait_s": 900.0,
        },
        {"gpu_settings": GpuSettings(round_interval_s=45.0, rounds=True), "max_wait_s": 500.0},
    ],
    ids=["plain", "placements", "costly", "places", "no checkpoint", "rounds"],
)
def test_return_equals_episode_metric(arguments):
    jobs = crowded(150, 7)
    speeds = speeds_of(jobs) if arguments.pop("speeds", False) else None
    weights = {name: 1.0 + place for place, name in enumerate(TERMS)}
    vec = gpu_env(jobs, reward=weights, sla_s=300.0, speeds=speeds, **arguments)
    for seed in range(3):
        terms, total, infos = run_random_episode(vec, seed)
        first = int(vec.simulator.buffers.copies["first"][0])
        window_speeds = part_of(speeds, slice(first, first + 60))
        log = log_of(vec, window_speeds)
        assert terms == pytest.approx(metrics_of_log(log, window_speeds, sla_s=300.0))
        assert total == pytest.approx(-terms @ vec.reward.vector())
        assert infos["episode"]["terms"][0] == pytest.approx(terms)
        assert infos["episode"]["metric"][0] == pytest.approx(-infos["episode"]["r"][0]) == pytest.approx(-total)
        if arguments.get("gpu_settings") is COSTLY:
            assert terms[list(TERMS).index("lost")] > 0
        if speeds is None and "preempt" not in arguments:
            assert terms[2] == pytest.approx(shared_slowdown(log))


def metrics_of_log(log, speeds, sla_s):
    """The terms computed from the log alone, by `kilowait.metrics`."""
    found = gpu_metrics(log, machine(), speeds)
    records, jobs = log.jobs(), log.jobs_table
    assert found["unfinished_jobs"] == 0
    turnaround = records["turnaround_s"]
    weight = 1 + np.maximum(jobs["priority"], 0)
    return [
        found["mean_jct_s"] / 3600,
        found["mean_queueing_s"] / 3600,
        np.mean(np.maximum(turnaround / np.maximum(jobs["runtime_s"], 10), 1)) - 1,
        np.mean(records["wait_s"] > sla_s),
        np.average(turnaround, weights=weight) / 3600,
        found["lost_gpu_hours"],
        found["makespan_s"] / 3600,
        14 * found["makespan_s"] / 3600 * (1 - found["gpu_utilization"]),
        np.mean((turnaround - records["run_s"]) * jobs["gpus"] * jobs.column("gpu_milli") / 1000 * jobs["runtime_s"])
        / 14
        / 3600**2,
    ]


def shared_slowdown(log):
    """Jobs that share GPUs run longer than at speed 1; those that never do have the slowdown of `metrics`."""
    records, run = log.jobs(), log.jobs_table["runtime_s"]
    window_speeds = np.maximum(records["turnaround_s"] / np.maximum(records["run_s"], 10), 1)
    assert window_speeds.mean() == pytest.approx(kw.metrics(log)["mean_bsld"])
    alone = np.isclose(records["run_s"], run)
    assert alone.sum() > 30
    other = np.maximum(records["turnaround_s"] / np.maximum(run, 10), 1)
    return np.mean(np.where(alone, window_speeds, other)) - 1


def truncated_episode(mode):
    """An episode truncated at its horizon: the environment, last observation and info, and the sum of its terms."""
    weights = dict.fromkeys(TERMS, 1.0)
    vec = gpu_env(crowded(150, 8), horizon_s=700.0, reward=weights, sla_s=200.0, autoreset_mode=mode, queue_window=16)
    observation, _ = vec.reset(options={"first": 20})
    random, over, terms = np.random.default_rng(3), False, 0.0
    while not over:
        observation, _, ended, cut, infos = vec.step(np.array([random.choice(np.flatnonzero(observation["mask"][0]))]))
        terms, over = terms + infos["terms"][0], bool(cut[0])
        assert not ended[0]
    return vec, observation, infos, terms


def test_truncated_episode_counts_costs_so_far():
    vec, observation, _, terms = truncated_episode(AutoresetMode.DISABLED)
    state, job_state = state_of(vec), state_of(vec).job_state
    now = float(state.clock["now"][0])
    assert now == vec.jobs["submit_s"][20] + 700 and not observation["mask"].any() and observation["jobs"].any()
    age = np.where(job_state["arrival_s"] <= now, now - job_state["arrival_s"], 0.0)
    ended_copies, holds = job_state["status"] == 4, np.isin(job_state["status"], (2, 3))
    age[ended_copies] = (state.segments["end_s"][job_state["segment"]] - job_state["arrival_s"])[ended_copies]
    held = job_state["attained_s"] + np.where(holds, now - job_state["start_s"], 0.0)
    assert holds.any() and ended_copies.any() and (job_state["status"] == 0).any()
    assert terms[:2] == pytest.approx([age.mean() / 3600, (age - held).mean() / 3600])
    assert terms[6:8] == pytest.approx([700 / 3600, (14 * 700 - held @ state.jobs["gpu_share"]) / 3600])
    _, first_observation, infos, same_terms = truncated_episode(AutoresetMode.SAME_STEP)
    last = infos["final_obs"]
    assert all(np.array_equal(last[name], observation[name]) for name in observation)
    assert first_observation["mask"].any() and np.array_equal(terms, same_terms)


def test_horizon_after_the_end_has_no_effect():
    assert run_random_episode(gpu_env(horizon_s=1e7))[0] == pytest.approx(run_random_episode(gpu_env())[0])


@pytest.mark.parametrize("arguments", [{"hold": True}, {"preempt": True, "gpu_settings": COSTLY, "victims": 4}])
def test_vectorized_copies_match_single_environments(arguments):
    jobs = crowded(200, 1)
    many = gpu_env(
        jobs, copies=6, threads=2, autoreset_mode=AutoresetMode.NEXT_STEP, queue_window=12, episode_jobs=40, **arguments
    )
    first = np.array([0, 11, 80, 110, 159, 160])
    observation, _ = many.reset(options={"first": first})
    singles = [gpu_env(jobs, queue_window=12, episode_jobs=40, **arguments) for _ in first]
    alone = [env.reset(options={"first": at})[0] for env, at in zip(singles, first, strict=True)]
    ended_copies = np.zeros(6, bool)
    random = np.random.default_rng(2)
    while not ended_copies.all():
        for i in np.flatnonzero(~ended_copies):
            assert all(np.array_equal(observation[name][i], alone[i][name][0]) for name in observation)
        actions = np.array([random.choice(np.flatnonzero(m)) if m.any() else 0 for m in observation["mask"]])
        observation, reward, over, _, _ = many.step(actions)
        for i in np.flatnonzero(~ended_copies):
            alone[i], r, o, _, _ = singles[i].step(actions[i : i + 1])
            assert (r[0], o[0]) == (reward[i], over[i])
        ended_copies |= over


def test_episodes_are_reproducible_on_any_number_of_threads():
    def run(threads):
        vec = gpu_env(copies=5, threads=threads)
        observation, _ = vec.reset(seed=3)
        outputs = [observation["jobs"].copy()]
        for _ in range(80):
            observation, reward, *_ = vec.step(observation["mask"].argmax(axis=1))
            outputs += [observation["jobs"], reward]
        return np.concatenate([part.ravel() for part in outputs])

    assert np.array_equal(run(1), run(3))


def test_autoreset_modes():
    for mode in AutoresetMode:
        vec = gpu_env(copies=2, autoreset_mode=mode, episode_jobs=30)
        observation, _ = vec.reset(seed=1)
        over = np.zeros(2, bool)
        while not over.any():
            observation, reward, over, _, infos = vec.step(observation["mask"].argmax(axis=1))
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


def test_abandoned_episode_does_not_affect_the_next():
    vec = gpu_env(preempt=True, queue_window=8)
    first_observation, _ = vec.reset(options={"first": 0})
    for _ in range(40):
        vec.step(np.array([np.flatnonzero(vec.action_masks()[0])[-1]]))
    again, _ = vec.reset(options={"first": 0})
    assert all(np.array_equal(first_observation[name], again[name]) for name in first_observation)


def test_restored_snapshot_continues_identically():
    def steps(vec, count, observation):
        outputs = []
        for _ in range(count):
            observation, reward, *_ = vec.step(observation["mask"].argmax(axis=1))
            outputs.append((observation["jobs"].tobytes(), reward.tobytes()))
        return outputs, observation

    one = gpu_env(copies=3, preempt=True)
    observation, _ = one.reset(seed=9)
    _, observation = steps(one, 37, observation)
    saved = one.snapshot()
    after, _ = steps(one, 120, observation)
    other = gpu_env(copies=3, preempt=True)
    assert steps(other, 120, other.restore(saved))[0] == after
    with pytest.raises(InputError, match="another size"):
        gpu_env(copies=2, preempt=True).restore(saved)


def test_hold_advances_time_and_every_episode_ends():
    vec = gpu_env(hold=True, gpu_settings=GpuSettings(round_interval_s=60.0))
    vec.reset(seed=0)
    over, held = False, 0
    while not over:
        mask = vec.action_masks()[0]
        held += int(mask[-1])
        over = bool(vec.step(np.array([vec.observation_spec.actions - 1 if mask[-1] else int(mask.argmax())]))[2][0])
    assert held > 30
    assert (log_of(vec).job_outcome == 1).all()


def test_preemption_is_limited_and_not_in_the_instant_of_the_start():
    vec = gpu_env(
        preempt=True, max_preemptions=2, gpu_settings=GpuSettings(checkpoint_s=np.inf, min_run_before_preempt_s=20.0)
    )
    vec.reset(seed=0)
    over = False
    while not over:  # preempt whenever possible
        mask = vec.action_masks()[0]
        victims = np.flatnonzero(mask[vec.decision_settings.queue_window * vec.observation_spec.choices : -1])
        action = (
            vec.decision_settings.queue_window * vec.observation_spec.choices + victims[0]
            if len(victims)
            else mask.argmax()
        )
        over = bool(vec.step(np.array([action]))[2][0])
    log = log_of(vec)
    starts = np.bincount(log.job, minlength=60)
    assert starts.max() == 3 and (log.job_outcome == 1).all()
    out = log.outcome == 5
    assert out.any() and (log.end_s - log.start_s)[out].min() >= 20


def test_no_job_starts_before_an_overdue_job_on_its_types():
    jobs, bound = crowded(150, 4), 600.0
    longest = lambda job_state, numbers: -job_state["estimate_s"][numbers]  # noqa: E731
    free = gpu_env(jobs, episode_jobs=120)
    run_window(free, longest, 0)
    vec = gpu_env(jobs, episode_jobs=120, max_wait_s=bound)
    run_window(vec, longest, 0)
    log = log_of(vec)
    start, submit = log.jobs()["start_s"], jobs["submit_s"][:120]
    may = vec.simulator.log_arrays.may[vec.simulator.states.job_state["speed_class"][0, :120]]
    group_type = np.array([0, 1, 2])[log.group]
    guarded = 0
    for job in range(120):
        for segment in np.flatnonzero((log.start_s > submit[job] + bound) & (log.start_s < start[job])):
            late_first = (submit[:job] + bound < log.start_s[segment]) & (start[:job] >= log.start_s[segment])
            if log.job[segment] != job and not late_first.any():
                guarded += 1
                assert not (may[job] >> group_type[segment]) & 1
    waits = lambda env: np.nanmax(log_of(env).jobs()["start_s"] - submit)  # noqa: E731
    assert waits(vec) < waits(free)
    assert guarded > 0


def test_a_forbidden_action_is_replaced_and_counted():
    vec = gpu_env()
    vec.reset(seed=0)
    over = False
    while not over:
        *_, infos = stepped = vec.step(np.array([vec.observation_spec.actions - 1]))
        over = bool(stepped[2][0])
    assert infos["episode"]["invalid"][0] == infos["episode"]["l"][0] > 0


def test_arrival_rate_scales_submissions():
    vec = gpu_env()
    vec.set_arrival_rate(4.0)
    vec.reset(options={"first": 0})
    arrivals, given = vec.simulator.states.job_state["arrival_s"][0, :60], crowded(150, 0)["submit_s"][:60]
    assert arrivals - arrivals[0] == pytest.approx((given - given[0]) / 4)


def test_oversized_jobs_are_dropped():
    jobs = crowded(60, 2).with_columns(cores=np.where(np.arange(60) % 7 == 3, 99, 1))
    vec = gpu_env(jobs)
    _, _, infos = run_random_episode(vec, 1)
    log = log_of(vec)
    refused = np.arange(60) % 7 == 3
    assert (log.job_outcome[refused] == 4).all() and (log.job_outcome[~refused] == 1).all()
    assert infos["episode"]["terms"][0, 0] == pytest.approx(gpu_metrics(log, machine())["mean_jct_s"] / 3600)


def test_stale_events_do_not_fill_the_arrays():
    n = 500  # five long jobs share each GPU with many short ones: every start and end delays their ends
    short = np.arange(n) >= 10
    jobs = kw.JobTable(
        job_id=np.arange(n),
        submit_s=np.where(short, np.arange(n) * 20.0, 0.0),
        runtime_s=np.where(short, 35.0, 1e7),
        nodes=np.ones(n, int),
        gpus=np.ones(n, int),
        gpu_milli=np.where(short, 30, 160),
    )
    cluster = Cluster([NodeGroup("one", 1, gpus=2, gpu_type="T4", node_level=True)])
    vec = gpu_env(jobs, cluster=cluster, episode_jobs=n, hold=True)
    run_window(vec, lambda job_state, numbers: job_state["estimate_s"][numbers], 0)
    log = log_of(vec)
    assert vec.simulator.states.events.shape[1] < 2 * 5 * (n - 10)  # fewer than the delayed ends
    assert same_segments(log, kw.simulate(jobs, cluster, "sjf", "skip", gpu_speeds="none"))


def test_input_errors():
    with pytest.raises(InputError, match="the log 150"):
        gpu_env(episode_jobs=300)
    with pytest.raises(InputError, match="Batch-v0"):
        gpu_env(cluster=Cluster.from_nodes(8))
    with pytest.raises(UnknownNameError, match="jct"):
        gpu_env(reward={"jtc": 1})
    with pytest.raises(InputError, match="let the agent preempt"):
        gpu_env(gpu_settings=GpuSettings(preempt=True))
    with pytest.raises(InputError, match="horizon_s is 0"):
        gpu_env(horizon_s=0)
    with pytest.raises(UnknownNameError, match="consolidate"):
        GpuDecisionSettings(placements=("consolidat",))
    with pytest.raises(InputError, match="only one"):
        GpuDecisionSettings(placements=("fgd", "capacity"))
    with pytest.raises(InputError, match="at least 1"):
        GpuDecisionSettings(queue_window=0)
