"""`kilowait/Energy-v0`: decisions from outside the engine give the same runs with power controls."""

import numpy as np
import pytest

from kilowait.cluster import Cluster
from kilowait.envs.kernels.decision_batch import BACKFILLING, HEAD
from kilowait.envs.kernels.decision_power import NODES_PHASE
from tests.envs.energy_workloads import MACHINE, NEVER, crowded, energy, quiet, run_window, signals, window_controls
from tests.envs.workloads import planned, started, two_groups

POWER_CONTROLS = [
    "none",
    "dvfs=1.5",
    "sleep=timeout:120",
    "sleep=predictive:60+dvfs=1.5",
    "sleep=timeout:60:reserve=3+dvfs=1.5+budget=80%",
    "budget=85%",
]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("cluster", [MACHINE, two_groups()], ids=lambda cluster: cluster.name)
@pytest.mark.parametrize("power_controls", POWER_CONTROLS)
@pytest.mark.parametrize("backfill", ["none", "easy", 2])
def test_policy_run_through_env_matches_engine_log(seed, cluster, power_controls, backfill):
    jobs = quiet(90, seed) if seed % 2 else crowded(90, seed)
    first = 7 * seed % 30
    window = jobs[first : first + 60]
    saf = jobs["estimate_s"] * jobs["nodes"]
    vec = energy(jobs, cluster=cluster, power_controls=power_controls, backfill=backfill, hold_s=NEVER)
    for level in {0, vec.observation_spec.choices - 1}:
        if not vec.power_setup.power_tables.may[:, level].all():
            continue
        controls = window_controls(vec, first, level)
        engine_log = started(window, cluster, policy="saf", backfill=backfill, power_controls=controls)
        assert np.array_equal(run_window(vec, saf, level, first), engine_log, equal_nan=True)
    ordered = energy(
        jobs, cluster=cluster, power_controls=power_controls, backfill=backfill, hold_s=NEVER, backfill_order="sjf"
    )
    order = None if backfill == "none" else "sjf"
    engine_log = started(
        window,
        cluster,
        policy="saf",
        backfill=backfill,
        backfill_order=order,
        power_controls=window_controls(vec, first, 0),
    )
    assert np.array_equal(run_window(ordered, saf, 0, first), engine_log, equal_nan=True)


@pytest.mark.parametrize("overrun", ["double", "steps", "quantile"])
def test_policy_run_through_env_matches_engine_log_with_planned_run_times(overrun):
    jobs = planned(crowded(90, 2), 2)
    saf = jobs["estimate_s"] * jobs["nodes"]
    vec = energy(jobs, power_controls="sleep=predictive:60+dvfs=1.5", backfill="easy", overrun=overrun, hold_s=NEVER)
    for level in {0, vec.observation_spec.choices - 1}:
        controls = window_controls(vec, 14, level)
        engine_log = started(
            jobs[14:74], MACHINE, policy="saf", backfill="easy", overrun=overrun, power_controls=controls
        )
        assert np.array_equal(run_window(vec, saf, level, 14), engine_log, equal_nan=True)


def test_dvfs_states_of_the_previous_test_are_allowed():
    vec = energy(crowded(90, 0), power_controls="dvfs=1.5")
    assert vec.observation_spec.choices > 3 and vec.power_setup.power_tables.may.all()


def test_too_slow_dvfs_states_are_masked():
    vec = energy(power_controls="dvfs=1.2", sleep_actions=False)
    vec.reset(seed=1)
    factor, levels = vec.power_setup.power_controls.factor[0], vec.observation_spec.choices
    allowed_counts = set()
    for _ in range(60):
        a = vec.simulator.buffers
        first = int(a.copies["first"][0])
        for slot in range(int(a.copies["shown"][0])):
            row = a.mask[0, slot * levels : (slot + 1) * levels]
            may = factor[first + a.slots[0, slot], :levels] <= 1.2
            assert not row[~may].any()
            if a.copies["phase"][0] == HEAD and row.any():
                assert row[may].all()
            allowed_counts.add(int(may.sum()))
        if vec.step(np.array([int(a.mask[0].argmax())]))[2][0]:
            break
    assert len(allowed_counts) > 1


def env_with_low_carbon_next_hour(**arguments):
    """One job that arrives at 0:30 of a carbon-intensive hour; the next hour is clean."""
    jobs = quiet(200, 0)[:1].with_columns(submit_s=np.array([1800.0]), nodes=np.array([4]))
    return energy(jobs, episode_jobs=1, power_controls="dvfs=1.2", **arguments)


def test_hold_waits_for_the_next_step_of_a_signal():
    vec = env_with_low_carbon_next_hour(**signals())
    vec.reset()
    hold = vec.observation_spec.actions - 1
    times = [float(vec.simulator.states.clock["now"][0, 0])]
    for _ in range(3):
        assert vec.simulator.buffers.mask[0, hold] == 1
        vec.step(np.array([hold]))
        times.append(float(vec.simulator.states.clock["now"][0, 0]))
    assert times == [1800.0, 2700.0, 3600.0, 4500.0]  # the price changes by the quarter hour
    alone = env_with_low_carbon_next_hour(carbon=signals()["carbon"])
    alone.reset()
    for _ in range(2):
        alone.step(np.array([hold]))
    assert float(alone.simulator.states.clock["now"][0, 0]) == 7200.0


def test_hold_is_bounded():
    vec = env_with_low_carbon_next_hour(max_wait_for_hold_s=4 * 3600.0)
    vec.reset()
    hold, steps = vec.observation_spec.actions - 1, 0
    while vec.simulator.buffers.mask[0, hold]:
        vec.step(np.array([hold]))
        steps += 1
    assert steps == 4  # an hour each
    assert vec.simulator.buffers.mask[0, :hold].any()
    assert vec.step(np.array([0]))[2][0] and vec.simulator.states.job_state["start_s"][0, 0] == 1800 + 4 * 3600


def test_no_job_starts_before_an_overdue_job():
    vec = energy(crowded(200, 4), episode_jobs=120, max_wait_s=1500.0)
    vec.reset(options={"first": 0})
    guarded, over = 0, False
    while not over:
        a = vec.simulator.buffers
        allowed = np.flatnonzero(a.mask[0])
        if a.copies["phase"][0] == HEAD:
            numbers = a.slots[0, : int(a.copies["shown"][0])]
            waits = vec.simulator.states.clock["now"][0, 0] - vec.jobs["submit_s"][numbers]
            if (waits > 1500.0).any():
                guarded += 1
                oldest = int(np.argmax(waits > 1500.0))
                assert (
                    set(allowed // vec.observation_spec.choices) == {oldest}
                    or allowed[-1] >= vec.observation_spec.actions - 2
                )
                assert a.mask[0, vec.observation_spec.actions - 3] == 0
        over = bool(vec.step(allowed[len(allowed) // 2 : len(allowed) // 2 + 1])[2][0])
    assert guarded > 10


def env_with_manual_sleep(**arguments):
    """Two jobs of 4 nodes, 10 minutes apart, on 16 nodes that sleep only by action."""
    jobs = quiet(200, 0)[:2].with_columns(
        submit_s=np.array([0.0, 600.0]),
        nodes=np.array([4, 6]),
        runtime_s=np.array([300.0, 300.0]),
        estimate_s=np.array([300.0, 300.0]),
    )
    return energy(jobs, episode_jobs=2, power_controls="sleep=timeout:1000d", **arguments)


def test_sleep_and_wake_actions():
    vec = env_with_manual_sleep()
    vec.reset()
    hold, sleep, wake = range(vec.observation_spec.actions - 3, vec.observation_spec.actions)
    states = lambda: vec.simulator.states.sleep_state[0, 0]  # noqa: E731
    now = lambda: float(vec.simulator.states.clock["now"][0, 0])  # noqa: E731
    phase = lambda: int(vec.simulator.buffers.copies["phase"][0])  # noqa: E731
    assert phase() == HEAD and vec.simulator.buffers.mask[0, [hold, sleep, wake]].tolist() == [1, 1, 0]
    vec.step(np.array([0]))
    # 12 nodes are free and no job waits: only sleep is decided.
    assert (now(), phase()) == (0.0, NODES_PHASE)
    assert np.flatnonzero(vec.simulator.buffers.mask[0]).tolist() == [hold, sleep]
    vec.step(np.array([sleep]))
    # The next event is the end of the job: its nodes are idle, the others sleep.
    assert (now(), phase(), states().awake, states().asleep) == (300.0, NODES_PHASE, 4, 12)
    vec.step(np.array([hold]))
    assert (now(), phase()) == (600.0, HEAD)
    assert vec.simulator.buffers.mask[0, [hold, sleep, wake]].tolist() == [1, 1, 1]
    vec.step(np.array([wake]))
    # Two more nodes were woken; sleep and wake are decided once a pass.
    assert (states().awake, states().waking, states().asleep) == (4, 2, 10)
    assert vec.simulator.buffers.mask[0, [hold, sleep, wake]].tolist() == [1, 0, 0]
    vec.step(np.array([hold]))
    assert now() == pytest.approx(600 + 151.52)
    assert vec.step(np.array([0]))[2][0]
    assert vec.simulator.states.job_state["start_s"][0].tolist() == pytest.approx([0.0, 751.52])


def test_without_sleep_actions_the_sleep_policy_decides():
    vec = env_with_manual_sleep(sleep_actions=False)
    vec.reset()
    assert vec.observation_spec.extra == 1
    assert not vec.step(np.array([0]))[2][0] and vec.simulator.states.clock["now"][0, 0] == 600.0


def test_sleep_timeout_works_with_sleep_actions():
    jobs = quiet(200, 3)
    slow, fast = (energy(jobs, power_controls=f"sleep=timeout:{t}") for t in ("300", "1000d"))
    random = np.random.default_rng(0)
    slept = []
    for vec in (slow, fast):
        vec.reset(options={"first": 0})
        asleep, over = 0, False
        while not over:  # the sleep action is never taken
            allowed = np.flatnonzero(vec.simulator.buffers.mask[0, :-2])
            over = bool(vec.step(random.choice(allowed, 1))[2][0])
            asleep = max(asleep, int(vec.simulator.states.sleep_state["asleep"][0, 0]))
        slept.append(asleep)
    assert slept[0] > 0 and slept[1] == 0


def test_backfill_allows_only_fitting_dvfs_states():
    # 12 of 16 nodes are busy until 1,000 s; a job of 16 nodes has a reservation; one of 900 s fits at full speed only.
    jobs = quiet(200, 0)[:3].with_columns(
        submit_s=np.array([0.0, 1.0, 2.0]),
        nodes=np.array([12, 16, 4]),
        runtime_s=np.array([1000.0, 500, 900]),
        estimate_s=np.array([1000.0, 500, 900]),
        beta=np.ones(3),
        power_w=None,
    )
    vec = energy(jobs, episode_jobs=3, power_controls="dvfs=1.5", queue_window=4)
    vec.reset()
    vec.step(np.array([0]))  # at 0 s
    vec.step(np.array([vec.observation_spec.actions - 1])) if vec.simulator.buffers.copies["shown"][0] < 2 else None
    levels = vec.observation_spec.choices
    vec.step(np.array([0]))  # a reservation for the second job
    a = vec.simulator.buffers
    assert a.copies["phase"][0] == BACKFILLING
    may = np.flatnonzero(a.mask[0, : 4 * levels])
    factor = vec.power_setup.power_controls.factor[0, 2]
    assert may.tolist() == (levels + np.flatnonzero(2 + 900 * factor[:levels] <= 1000)).tolist()
    assert 1 <= len(may) < levels
    assert a.mask[0, 4 * levels] == 1  # hold is allowed


def test_several_groups_sleep_and_wake():
    machine = two_groups()
    jobs = quiet(120, 2)
    vec = energy(jobs, cluster=machine, power_controls="sleep=timeout:1000d")
    vec.reset(options={"first": 0})
    sleep, wake = vec.observation_spec.actions - 2, vec.observation_spec.actions - 1
    action_counts, over = {sleep: 0, wake: 0}, False
    random = np.random.default_rng(1)
    while not over:
        a = vec.simulator.buffers
        action = int(random.choice(np.flatnonzero(a.mask[0])))
        for turn in action_counts:
            if a.mask[0, turn] and random.random() < 0.3:
                action = turn
                action_counts[turn] += 1
        over = bool(vec.step(np.array([action]))[2][0])
        s = vec.simulator.states
        free = s.pools["free"][0]
        parts = sum(s.sleep_state[name][0] for name in ("awake", "shutting_down", "asleep", "waking"))
        assert (parts == free).all()
    assert min(action_counts.values()) > 3


def test_queue_window_does_not_change_the_schedule():
    jobs = crowded(90, 1)
    one = Cluster.from_nodes(16)
    saf = jobs["estimate_s"] * jobs["nodes"]
    saved = [run_window(energy(jobs, cluster=one, queue_window=slots), saf, 0, 3) for slots in (64, 96)]
    assert np.array_equal(*saved)
