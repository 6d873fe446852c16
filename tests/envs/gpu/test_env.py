"""`kilowait/Gpu-v0`: decisions from outside the GPU engine give the same runs."""

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import kilowait as kw
from kilowait.cluster import Cluster, NodeGroup
from kilowait.engine.gpu.settings import GpuSettings
from kilowait.engine.gpu.simulator import GpuSimulator
from kilowait.envs.gpu.batched_sim import GpuDecisionSettings, external_gpu_policy
from kilowait.envs.gpu.reward_terms import TERMS
from kilowait.errors import InputError, UnknownNameError
from kilowait.evaluation import gpu_metrics
from kilowait.jobs.execution_log import Outcome
from tests.envs.gpu.workloads import (
    crowded,
    gpu_env,
    log_of,
    machine,
    part_of,
    play,
    same,
    speeds_of,
    state_of,
    usual,
    wander,
)

COSTLY = GpuSettings(grace_s=7.0, checkpoint_write_s=11.0, checkpoint_load_s=5.0, checkpoint_s=60.0)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("types", ["any", "fastest"])
@pytest.mark.parametrize("placement", ["first", "consolidate", "best", "random"])
def test_policy_run_through_env_matches_engine_log(seed, types, placement):
    jobs = crowded(90, seed)
    speeds = speeds_of(jobs, seed) if seed % 2 else None
    first = 7 * seed % 30
    window, own = jobs[first : first + 60], part_of(speeds, slice(first, first + 60))
    placing = usual(placement=placement, gpu_type_order=types, on_oversized="drop")
    vec = gpu_env(jobs, speeds=speeds, gpu_settings=placing)
    play(vec, lambda job_state, numbers: job_state["estimate_s"][numbers], first)
    assert same(
        log_of(vec, own),
        kw.simulate(window, machine(), "sjf", "skip", settings=placing, speeds=own, gpu_speeds="none"),
    )
    play(vec, lambda job_state, numbers: job_state["estimate_s"][numbers] - job_state["done"][numbers], first)
    assert same(
        log_of(vec, own),
        kw.simulate(window, machine(), "srtf", "skip", settings=placing, speeds=own, gpu_speeds="none"),
    )


@pytest.mark.parametrize("placement", ["fgd", "capacity"])
def test_placements_that_look_at_the_mix_of_jobs(placement):
    jobs = crowded(60, 3)
    vec = gpu_env(jobs, gpu_settings=usual(placement=placement))
    for _ in range(2):  # what the first episode has found must not be taken for true in the second
        play(vec, lambda job_state, numbers: job_state["estimate_s"][numbers], 0)
        assert same(
            log_of(vec), kw.simulate(jobs, machine(), "sjf", "skip", placement=placement, gpu_speeds="none")
        )


def test_scheduling_rounds():
    jobs = crowded(60, 4)
    placing = usual(round_interval_s=90.0, rounds=True)
    vec = gpu_env(jobs, gpu_settings=placing)
    play(vec, lambda job_state, numbers: job_state["estimate_s"][numbers], 0)
    assert same(log_of(vec), kw.simulate(jobs, machine(), "sjf", "skip", settings=placing, gpu_speeds="none"))


@pytest.mark.parametrize(
    "costs", [{}, {"checkpoint_write_s": 11.0, "checkpoint_load_s": 5.0, "checkpoint_s": 60.0}]
)
def test_migration_after_a_pass_matches_the_engine(costs):
    jobs = crowded(60, 6)
    speeds = speeds_of(jobs, 6)
    placing = usual(migrate=True, gpu_type_order="fastest", **costs)
    vec = gpu_env(jobs, speeds=speeds, gpu_settings=placing, max_preemptions=40)
    for _ in range(2):
        play(vec, lambda job_state, numbers: job_state["estimate_s"][numbers], 0)
        log = kw.simulate(jobs, machine(), "sjf", "skip", settings=placing, speeds=speeds)
        assert same(log_of(vec, speeds), log) and (log.outcome == Outcome.MIGRATED).sum() > 3
    vec = gpu_env(jobs, speeds=speeds, gpu_settings=placing, max_preemptions=1)
    play(vec, lambda job_state, numbers: job_state["estimate_s"][numbers], 0)
    log = log_of(vec, speeds)
    assert np.bincount(log.job).max() == 2 and (log.job_outcome == Outcome.COMPLETED).all()


def test_mask_allows_exactly_the_jobs_that_fit():
    vec = gpu_env(crowded(150, 5), hold=True, speeds=speeds_of(crowded(150, 5)))
    vec.reset(seed=1)
    random = np.random.default_rng(0)
    simulator = GpuSimulator(vec.jobs[:60], vec.cluster, usual(), policy=external_gpu_policy())
    types, choices, seen = 3, vec.observation_spec.choices, np.zeros(2, int)
    for _ in range(40):
        a = vec.simulator.buffers
        for slot in range(int(a.copies["shown"][0])):
            for choice in range(1 + types):
                simulator._state = state_of(vec)
                fits = simulator.start(int(a.slots[0, slot]), choice - 1)
                assert fits == a.mask[0, slot * choices + choice]
                seen[int(fits)] += 1
        if vec.step(np.array([random.choice(np.flatnonzero(a.mask[0]))]))[2][0]:
            break
    assert (seen > 100).all()


@pytest.mark.parametrize(
    "how",
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
    ids=["plain", "placements", "costly", "places", "nothing kept", "rounds"],
)
def test_return_equals_episode_metric(how):
    jobs = crowded(150, 7)
    speeds = speeds_of(jobs) if how.pop("speeds", False) else None
    weights = {name: 1.0 + place for place, name in enumerate(TERMS)}
    vec = gpu_env(jobs, reward=weights, sla_s=300.0, speeds=speeds, **how)
    for seed in range(3):
        terms, total, told = wander(vec, seed)
        first = int(vec.simulator.buffers.copies["first"][0])
        own = part_of(speeds, slice(first, first + 60))
        log = log_of(vec, own)
        assert terms == pytest.approx(figures(log, own, sla_s=300.0))
        assert total == pytest.approx(-terms @ vec.reward.vector())
        assert told["episode"]["terms"][0] == pytest.approx(terms)
        assert (
            told["episode"]["metric"][0] == pytest.approx(-told["episode"]["r"][0]) == pytest.approx(-total)
        )
        if how.get("gpu_settings") is COSTLY:
            assert terms[list(TERMS).index("lost")] > 0
        if speeds is None and "preempt" not in how:
            assert terms[2] == pytest.approx(shared_slowdown(log))


def figures(log, speeds, sla_s):
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
    ]


def shared_slowdown(log):
    """Jobs that share GPUs run longer than at speed 1; those that never do have the slowdown of `metrics`."""
    records, run = log.jobs(), log.jobs_table["runtime_s"]
    own = np.maximum(records["turnaround_s"] / np.maximum(records["run_s"], 10), 1)
    assert own.mean() == pytest.approx(kw.metrics(log)["mean_bsld"])
    alone = np.isclose(records["run_s"], run)
    assert alone.sum() > 30
    other = np.maximum(records["turnaround_s"] / np.maximum(run, 10), 1)
    return np.mean(np.where(alone, own, other)) - 1


def cut_off(mode):
    """An episode truncated at its horizon: the environment, last observation and info, and the sum of its terms."""
    weights = dict.fromkeys(TERMS, 1.0)
    vec = gpu_env(
        crowded(150, 8), horizon_s=700.0, reward=weights, sla_s=200.0, autoreset_mode=mode, queue_window=16
    )
    seen, _ = vec.reset(options={"first": 20})
    random, over, terms = np.random.default_rng(3), False, 0.0
    while not over:
        seen, _, ended, cut, told = vec.step(np.array([random.choice(np.flatnonzero(seen["mask"][0]))]))
        terms, over = terms + told["terms"][0], bool(cut[0])
        assert not ended[0]
    return vec, seen, told, terms


def test_truncated_episode_counts_costs_so_far():
    vec, seen, _, terms = cut_off(AutoresetMode.DISABLED)
    state, job_state = state_of(vec), state_of(vec).job_state
    now = float(state.clock["now"][0])
    assert now == vec.jobs["submit_s"][20] + 700 and not seen["mask"].any() and seen["jobs"].any()
    age = np.where(job_state["arrival_s"] <= now, now - job_state["arrival_s"], 0.0)
    gone, holds = job_state["status"] == 4, np.isin(job_state["status"], (2, 3))
    age[gone] = (state.segments["end_s"][job_state["segment"]] - job_state["arrival_s"])[gone]
    held = job_state["attained_s"] + np.where(holds, now - job_state["start_s"], 0.0)
    assert holds.any() and gone.any() and (job_state["status"] == 0).any()
    assert terms[:2] == pytest.approx([age.mean() / 3600, (age - held).mean() / 3600])
    assert terms[6:] == pytest.approx([700 / 3600, (14 * 700 - held @ state.jobs["gpu_share"]) / 3600])
    _, begun, told, same_terms = cut_off(AutoresetMode.SAME_STEP)
    last = told["final_obs"]
    assert all(np.array_equal(last[name], seen[name]) for name in seen)
    assert begun["mask"].any() and np.array_equal(terms, same_terms)


def test_a_far_horizon_changes_nothing():
    assert wander(gpu_env(horizon_s=1e7))[0] == pytest.approx(wander(gpu_env())[0])


@pytest.mark.parametrize("how", [{"hold": True}, {"preempt": True, "gpu_settings": COSTLY, "victims": 4}])
def test_vectorized_copies_match_single_environments(how):
    jobs = crowded(200, 1)
    many = gpu_env(
        jobs,
        copies=6,
        threads=2,
        autoreset_mode=AutoresetMode.NEXT_STEP,
        queue_window=12,
        episode_jobs=40,
        **how,
    )
    first = np.array([0, 11, 80, 110, 159, 160])
    seen, _ = many.reset(options={"first": first})
    singles = [gpu_env(jobs, queue_window=12, episode_jobs=40, **how) for _ in first]
    alone = [env.reset(options={"first": at})[0] for env, at in zip(singles, first, strict=True)]
    gone = np.zeros(6, bool)
    random = np.random.default_rng(2)
    while not gone.all():
        for i in np.flatnonzero(~gone):
            assert all(np.array_equal(seen[name][i], alone[i][name][0]) for name in seen)
        actions = np.array([random.choice(np.flatnonzero(m)) if m.any() else 0 for m in seen["mask"]])
        seen, reward, over, _, _ = many.step(actions)
        for i in np.flatnonzero(~gone):
            alone[i], r, o, _, _ = singles[i].step(actions[i : i + 1])
            assert (r[0], o[0]) == (reward[i], over[i])
        gone |= over


def test_episodes_are_reproducible_on_any_number_of_threads():
    def run(threads):
        vec = gpu_env(copies=5, threads=threads)
        seen, _ = vec.reset(seed=3)
        told = [seen["jobs"].copy()]
        for _ in range(80):
            seen, reward, *_ = vec.step(seen["mask"].argmax(axis=1))
            told += [seen["jobs"], reward]
        return np.concatenate([part.ravel() for part in told])

    assert np.array_equal(run(1), run(3))


def test_autoreset_modes():
    for mode in AutoresetMode:
        vec = gpu_env(copies=2, autoreset_mode=mode, episode_jobs=30)
        seen, _ = vec.reset(seed=1)
        over = np.zeros(2, bool)
        while not over.any():
            seen, reward, over, _, told = vec.step(seen["mask"].argmax(axis=1))
        i = int(over.argmax())
        assert told["_episode"][i] and told["episode"]["l"][i] > 0
        if mode is AutoresetMode.SAME_STEP:
            assert seen["mask"][i].any() and not told["final_obs"]["mask"][i].any()
        else:
            assert not seen["mask"][i].any() and not seen["jobs"][i].any()
        if mode is AutoresetMode.NEXT_STEP:
            seen, reward, over, _, _ = vec.step(np.zeros(2, int))
            assert reward[i] == 0 and not over[i] and seen["mask"][i].any()
        if mode is AutoresetMode.DISABLED:
            with pytest.raises(gymnasium.error.ResetNeeded):
                vec.step(np.zeros(2, int))
            kept = seen["jobs"][1 - i]
            seen, _ = vec.reset(options={"reset_mask": over})
            assert seen["mask"][i].any() and np.array_equal(seen["jobs"][1 - i], kept)


def test_abandoned_episode_does_not_affect_the_next():
    vec = gpu_env(preempt=True, queue_window=8)
    begun, _ = vec.reset(options={"first": 0})
    for _ in range(40):
        vec.step(np.array([np.flatnonzero(vec.action_masks()[0])[-1]]))
    again, _ = vec.reset(options={"first": 0})
    assert all(np.array_equal(begun[name], again[name]) for name in begun)


def test_restored_snapshot_continues_identically():
    def steps(vec, count, seen):
        told = []
        for _ in range(count):
            seen, reward, *_ = vec.step(seen["mask"].argmax(axis=1))
            told.append((seen["jobs"].tobytes(), reward.tobytes()))
        return told, seen

    one = gpu_env(copies=3, preempt=True)
    seen, _ = one.reset(seed=9)
    _, seen = steps(one, 37, seen)
    kept = one.snapshot()
    after, _ = steps(one, 120, seen)
    other = gpu_env(copies=3, preempt=True)
    assert steps(other, 120, other.restore(kept))[0] == after
    with pytest.raises(InputError, match="another size"):
        gpu_env(copies=2, preempt=True).restore(kept)


def test_hold_advances_time_and_every_episode_ends():
    vec = gpu_env(hold=True, gpu_settings=GpuSettings(round_interval_s=60.0))
    vec.reset(seed=0)
    over, held = False, 0
    while not over:
        mask = vec.action_masks()[0]
        held += int(mask[-1])
        over = bool(
            vec.step(np.array([vec.observation_spec.actions - 1 if mask[-1] else int(mask.argmax())]))[2][0]
        )
    assert held > 30
    assert (log_of(vec).job_outcome == 1).all()


def test_preemption_is_limited_and_not_in_the_instant_of_the_start():
    vec = gpu_env(
        preempt=True,
        max_preemptions=2,
        gpu_settings=GpuSettings(checkpoint_s=np.inf, min_run_before_preempt_s=20.0),
    )
    vec.reset(seed=0)
    over = False
    while not over:  # whoever can be put out is
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
    play(free, longest, 0)
    vec = gpu_env(jobs, episode_jobs=120, max_wait_s=bound)
    play(vec, longest, 0)
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
        *_, told = stepped = vec.step(np.array([vec.observation_spec.actions - 1]))
        over = bool(stepped[2][0])
    assert told["episode"]["invalid"][0] == told["episode"]["l"][0] > 0


def test_arrival_rate_scales_submissions():
    vec = gpu_env()
    vec.set_arrival_rate(4.0)
    vec.reset(options={"first": 0})
    arrivals, given = vec.simulator.states.job_state["arrival_s"][0, :60], crowded(150, 0)["submit_s"][:60]
    assert arrivals - arrivals[0] == pytest.approx((given - given[0]) / 4)


def test_oversized_jobs_are_dropped():
    jobs = crowded(60, 2).with_columns(cores=np.where(np.arange(60) % 7 == 3, 99, 1))
    vec = gpu_env(jobs)
    _, _, told = wander(vec, 1)
    log = log_of(vec)
    refused = np.arange(60) % 7 == 3
    assert (log.job_outcome[refused] == 4).all() and (log.job_outcome[~refused] == 1).all()
    assert told["episode"]["terms"][0, 0] == pytest.approx(gpu_metrics(log, machine())["mean_jct_s"] / 3600)


def test_stale_events_do_not_fill_the_arrays():
    n = 500  # five long jobs share each GPU with many short ones: every start and end puts their ends off
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
    play(vec, lambda job_state, numbers: job_state["estimate_s"][numbers], 0)
    log = log_of(vec)
    assert vec.simulator.states.events.shape[1] < 2 * 5 * (n - 10)  # fewer than were put off
    assert same(log, kw.simulate(jobs, cluster, "sjf", "skip", gpu_speeds="none"))


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
