"""Power controls: stepwise and whole runs agree, sleep and wake choices, errors."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import kilowait as kw
from kilowait.cluster import PowerControls, SleepPolicy
from kilowait.engine import jit_entry, power_initial_state
from kilowait.engine.interface import Choice
from kilowait.engine.settings import Settings
from kilowait.engine.simulator import Simulator
from kilowait.errors import ChoiceError, ClusterError, InputError, TableError, UnknownNameError
from kilowait.jobs import ExecutionLog, NodeStates
from kilowait.policies import resolve
from tests.engine.stepwise_policy import INTERPRETED, StepwiseScheduler, as_bytes, starts, table
from tests.oracle import conversion
from tests.oracle.power_workloads import power_case

CASES = 3 if INTERPRETED else 60
FOUR = kw.Cluster.from_nodes(4)


def asleep(timeout: float = 5.0, fall: float = 0.0, wake: float = 10.0, **more: object) -> PowerControls:
    return PowerControls(sleep={"nodes": SleepPolicy(timeout, fall, wake, **more)})  # type: ignore[arg-type]


def rows(states: NodeStates | None) -> list[tuple[float, int, int, int]]:
    assert states is not None
    columns = (states.time_s, states.shutting_down, states.asleep, states.waking)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def steps_of(log: ExecutionLog) -> list[tuple[float, int, int, int]]:
    return [] if log.states is None else rows(log.states)


def test_no_compilation_is_announced_when_the_kernel_is_in_the_cache(caplog: pytest.LogCaptureFixture) -> None:
    jit_entry.compiled_kernel("run", power=True)
    jit_entry.compiled_kernel.cache_clear()
    caplog.clear()
    jit_entry.compiled_kernel("run", power=True)
    assert "compiling" not in caplog.text


@pytest.mark.parametrize("depth", [1, 2, None], ids=["easy", "2", "conservative"])
@pytest.mark.parametrize("policy", ["fcfs", "wfp3"])
def test_stepwise_run_gives_the_log_of_the_whole_run(policy: str, depth: int | None) -> None:
    first = 50_000 + 1000 * (depth or 5) + (500 if policy == "fcfs" else 0)
    slept = 0
    for seed in range(first, first + CASES):
        drawn = power_case(seed)
        case = replace(drawn, policy=policy, depth=depth, backfill_order=None)
        log = StepwiseScheduler(case, resolve(policy)).run()
        assert case.power_controls is not None
        whole = kw.simulate(
            conversion.job_table(case.jobs),
            conversion.cluster(case),
            policy,
            conversion.DEPTHS.get(depth, depth),  # type: ignore[arg-type]
            at_limit=case.at_limit,
            schedule_per=case.schedule_per,
            placement=case.placement,
            overrun=case.overrun,
            on_oversized="drop",
            power_controls=conversion.power_controls_of(case.power_controls),
        )
        assert as_bytes(log) == as_bytes(whole), f"seed {seed}"
        assert steps_of(log) == steps_of(whole), f"seed {seed}"
        slept += len(steps_of(log))
    assert slept > CASES


def test_python_policy_gives_the_log_of_the_compiled_one() -> None:
    for seed in range(70_000, 70_000 + CASES):
        case = power_case(seed)
        assert case.power_controls is not None
        one, other = (
            kw.simulate(
                conversion.job_table(case.jobs),
                conversion.cluster(case),
                rule,
                "easy",
                on_oversized="drop",
                power_controls=conversion.power_controls_of(case.power_controls),
            )
            for rule in (resolve("sjf"), replace(resolve("sjf"), compiled=False))
        )
        assert as_bytes(one) == as_bytes(other), f"seed {seed}"


def test_a_job_waits_for_its_nodes_to_wake() -> None:
    jobs = table((0, 4, 10), (100, 2, 10))
    log = kw.simulate(jobs, FOUR, power_controls=asleep(timeout=5, fall=2, wake=20), backfill="none")
    assert starts(log) == [0, 120]
    assert rows(log.states) == [(15, 4, 0, 0), (17, 0, 4, 0), (100, 0, 2, 2), (120, 0, 2, 0)]
    assert log.jobs()["wait_s"].tolist() == [0, 20]
    assert starts(kw.simulate(jobs, FOUR, backfill="none")) == [0, 100]


def test_load_shifting_counts_as_waiting() -> None:
    jobs = table((0, 4, 10), (1, 1, 5)).with_columns(hold_until_s=[30.0, -math.inf])
    log = kw.simulate(jobs, FOUR, backfill="none")
    assert starts(log) == [30, 1]
    assert log.jobs()["wait_s"].tolist() == [30, 0] and log.jobs()["eligible_s"].tolist() == [0, 1]
    assert log.states is None


def test_dvfs_levels_scale_run_and_planned_times() -> None:
    jobs = table((0, 2, 10, 20))
    factor = np.array([[[1.0, 1.5]]])
    log = kw.simulate(
        jobs, FOUR, power_controls=PowerControls(factor=factor, preferred_level=np.array([1])), backfill="none"
    )
    assert log.end_s.tolist() == [15] and log.level.tolist() == [1]
    large_backlog = PowerControls(
        factor=np.ones((1, 2, 2)) * [1.0, 2.0], preferred_level=np.array([1, 1]), full_speed_backlog_nodes=0
    )
    log = kw.simulate(table((0, 4, 10), (0, 4, 10)), FOUR, power_controls=large_backlog, backfill="none")
    assert log.level.tolist() == [0, 1]  # the second waits alone: nothing is crowded any more


def test_a_budget_is_never_exceeded() -> None:
    jobs = kw.lublin(300, 16, load=1.1, seed=3)
    watts = (np.asarray(jobs["nodes"]) * 100).reshape(1, -1, 1)
    power_controls = PowerControls(watts=watts, budget=((-math.inf, 900), (20_000.0, 1600)))
    log = kw.simulate(jobs, kw.Cluster.from_nodes(16), "fcfs", "easy", power_controls=power_controls)
    assert len(log) == 300
    times = np.unique(np.concatenate((log.start_s, log.end_s)))
    drawn = [watts[0, log.job, 0][(log.start_s <= t) & (t < log.end_s)].sum() for t in times]
    allowed = np.where(times < 20_000, 900, 1600)
    assert (drawn <= allowed).all() and max(drawn) > 1300


def test_node_change_buffer_grows_during_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = kw.lublin(60 if INTERPRETED else 500, 8, load=0.4, seed=1)
    expected = kw.simulate(jobs, kw.Cluster.from_nodes(8), "fcfs", "easy", power_controls=asleep())
    monkeypatch.setattr(power_initial_state, "NODE_CHANGES", 60)
    log = kw.simulate(jobs, kw.Cluster.from_nodes(8), "fcfs", "easy", power_controls=asleep())
    assert as_bytes(log) == as_bytes(expected) and steps_of(log) == steps_of(expected)
    assert len(steps_of(log)) > 60


def test_sleep_and_wake_choices() -> None:
    jobs = table((0, 1, 10), (20, 1, 5), (60, 4, 5), (100, 4, 5))
    simulator = Simulator(jobs, FOUR, Settings(), power_controls=asleep(timeout=1e6, fall=1, wake=10))
    view = simulator.advance()
    assert view is not None and view.awake is not None and view.awake.tolist() == [4]
    simulator.apply(Choice.start(0))
    assert simulator.apply(Choice.sleep(0, 9)) == 3
    assert simulator.view().shutting_down.tolist() == [3]  # type: ignore[union-attr]
    view = simulator.advance()
    assert view is not None and view.asleep is not None
    simulator.apply(Choice.start(1))
    assert simulator.apply(Choice.wake(0, 2)) == 2
    simulator.advance()
    assert simulator.can_start(2) and simulator.can_start(2, level=0) and not simulator.can_start(2, level=1)
    simulator.apply(Choice.start(2))
    simulator.advance()
    simulator.apply(Choice.start(3))
    assert simulator.advance() is None
    assert starts(simulator.log()) == [0, 20, 70, 100]


def test_invalid_power_choices() -> None:
    simulator = Simulator(table((0, 1, 10)), FOUR, Settings())
    simulator.advance()
    with pytest.raises(ChoiceError, match="not a group with node sleep"):
        simulator.apply(Choice.wake(0, 1))
    with pytest.raises(ChoiceError, match="there is no level 1"):
        simulator.apply(Choice.start(0, level=1))


@pytest.mark.parametrize(
    ("power_controls", "problem", "words"),
    [
        (lambda: PowerControls(sleep={"node": SleepPolicy(5)}), UnknownNameError, "did you mean 'nodes'"),
        (lambda: SleepPolicy(-1), ClusterError, "timeout_s of a sleep policy is -1"),
        (lambda: SleepPolicy(1, reserve=((0.0, 1),)), ClusterError, "begin with -inf and increase"),
        (lambda: SleepPolicy(1, reserve=((-math.inf, -1),)), ClusterError, "whole numbers, 0 or more"),
        (lambda: PowerControls(budget=((-math.inf, 5),)), ClusterError, "needs the power of every job"),
        (lambda: PowerControls(watts=-np.ones((1, 1, 1), np.int64)), ClusterError, "job is -1 W"),
        (lambda: PowerControls(factor=np.zeros((1, 1, 1))), ClusterError, "at least 1"),
        (lambda: PowerControls(factor=np.ones((1, 1, 2)), watts=np.ones((1, 1, 1), np.int64)), ClusterError, "shapes"),
        (
            lambda: PowerControls(factor=np.ones((1, 1, 2)), preferred_level=np.array([2])),
            ClusterError,
            "between 0 and 1",
        ),
        (lambda: PowerControls(factor=np.ones((2, 1, 1))), TableError, r"must be \(1 groups, 1 jobs, levels\)"),
        (lambda: PowerControls(factor=np.ones((1, 1, 1)), preferred_level=np.zeros(3, int)), TableError, "of 3 jobs"),
        (
            lambda: PowerControls(watts=np.full((1, 1, 1), 9), budget=((-math.inf, 5),)),
            TableError,
            "draws at least 9 W, and the power budget is never more than 5 W",
        ),
    ],
)
def test_invalid_power_controls(power_controls, problem, words) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(problem, match=words):
        kw.simulate(table((0, 1, 10)), FOUR, power_controls=power_controls(), backfill="none")


def test_shared_nodes_do_not_sleep() -> None:
    cluster = kw.Cluster(groups=(kw.NodeGroup("nodes", 4, cores=8, shared=True),))
    with pytest.raises(ClusterError, match="only whole nodes can be put to sleep"):
        kw.simulate(table((0, 1, 10)), cluster, power_controls=asleep(), backfill="none")
    with pytest.raises(InputError):
        SleepPolicy(math.nan)


def test_burst_of_wake_ups_fits_the_node_change_buffer(monkeypatch):
    monkeypatch.setattr(power_initial_state, "NODE_CHANGES", 0)
    kept = power_initial_state.with_larger_node_change_buffer

    def checked(state):
        assert int(state.power_control_state["node_changes"][0]) <= len(state.node_changes)
        return kept(state)

    monkeypatch.setattr(power_initial_state, "with_larger_node_change_buffer", checked)
    for slow in range(68, 84, 3):  # whatever is left of the room when the burst comes
        burst = 100
        submit = np.concatenate([np.arange(slow) * 1000.0, np.full(burst, slow * 1000.0 + 500.0)])
        jobs = kw.JobTable(
            job_id=np.arange(slow + burst),
            submit_s=submit,
            runtime_s=np.ones(slow + burst),
            nodes=np.ones(slow + burst, np.int64),
        )
        run = Simulator(
            jobs,
            kw.Cluster.from_nodes(burst),
            Settings("none"),
            policy=resolve("fcfs"),
            power_controls=PowerControls(sleep={"nodes": SleepPolicy(10, 1, 5)}),
        )
        run.run()
        assert int(run.state.power_control_state["node_changes"][0]) <= len(run.state.node_changes)
