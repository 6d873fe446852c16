"""DVFS states, GPU power caps and node sleep: slowdown, energy, break-even."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilowait.energy.power import (
    GPU_CAP_CURVES,
    CapCurve,
    ConstantUtilization,
    DvfsState,
    DvfsTable,
    PowerModel,
    SleepStates,
    best_level,
    break_even_beta,
    clock_slowdown,
    job_power_w,
    level_tables,
)
from kilowait.errors import InputError
from kilowait.jobs import JobTable

TAURUS_NODES = PowerModel.preset("taurus").group()
SPEEDS = np.array([level.speed for level in TAURUS_NODES.levels])
WATTS = np.array([95 + 95.7 * level.cpu_dynamic for level in TAURUS_NODES.levels])


def test_slowdown_at_beta_0_and_1():
    assert clock_slowdown(1.0, 0.5) == 2
    assert clock_slowdown(0.0, 0.5) == 1
    assert clock_slowdown([0.3], 1.0).tolist() == [1]


@given(st.floats(0, 1), st.floats(0.05, 1), st.floats(0.05, 1))
def test_a_lower_clock_never_shortens_a_job(beta, one, other):
    slow, fast = clock_slowdown(beta, sorted((one, other)))
    assert slow >= fast >= 1


def test_taurus_states_are_as_measured():
    assert len(TAURUS_NODES.levels) == 13
    assert SPEEDS[[0, 1, -1]].tolist() == [1, 0.89, 0.45]
    assert WATTS[[0, 1, -1]].tolist() == pytest.approx([190.7, 171.0, 125.9])
    # Energy of work bound by the processor: 1.00 to 1.47 with one small dip.
    energy = WATTS * clock_slowdown(1.0, SPEEDS) / 190.7
    assert energy[-1] == pytest.approx(1.467, abs=5e-4)
    assert (energy[1:] > 1).all()
    assert (np.diff(energy) < 0).sum() == 1


def test_taurus_power_above_idle_goes_as_the_speed_to_1_5():
    logs = np.log(SPEEDS[1:])
    exponent = logs @ np.log((WATTS[1:] - 95) / 95.7) / (logs @ logs)
    assert exponent == pytest.approx(1.5, abs=0.01)


def test_break_even_of_beta_on_taurus():
    betas = break_even_beta(WATTS[1:], SPEEDS[1:], 190.7)
    assert betas[[0, 3, -1]].round(2).tolist() == [0.93, 0.72, 0.42]
    # At break-even the energy is equal; a larger beta costs energy, a smaller one saves it.
    for sign in (-1, 0, 1):
        energy = WATTS[1:] * clock_slowdown(betas + sign * 0.01, SPEEDS[1:]) - 190.7
        assert (np.sign(energy.round(9)) == sign).all()


@pytest.mark.parametrize("curve", GPU_CAP_CURVES.values(), ids=lambda curve: curve.gpu)
@given(st.floats(0.2, 3), st.floats(0.2, 3))
def test_tighter_caps_are_slower(curve, one, other):
    tight, loose = sorted((one, other))
    assert curve.slowdown(tight) >= curve.slowdown(loose) >= 1
    assert (
        curve.slowdown(1 + one) == curve.relative_energy(1 + one) == 1
    )  # a cap above the power of the job has no effect


def test_cap_energy_falls_and_rises_again():
    energy = GPU_CAP_CURVES["V100"].relative_energy([1.0, 0.8, 0.7, 0.6, 0.4])
    assert energy[0] == 1
    assert energy[2] == pytest.approx(0.7 * (1 + 0.58 * (3 / 7) ** 1.51))
    assert energy.argmin() not in (0, 4)


def test_taurus_sleeps_from_212_seconds():
    sleep = TAURUS_NODES.sleep
    assert round(sleep.break_even_s(TAURUS_NODES.idle_w)) == 212
    gap = sleep.break_even_s(95.0)
    asleep = sleep.to_sleep_j + sleep.wake_j + sleep.sleep_w * (gap - sleep.transition_s)
    assert asleep == pytest.approx(95 * gap)


def test_break_even_of_extreme_sleep_states():
    assert SleepStates(50, 1, 60, 1, 60).break_even_s(50) == math.inf
    assert SleepStates(5, 10, 20, 10, 20).break_even_s(100) == 20  # at least as long as the transitions


@given(st.floats(20, 500), st.floats(20, 500))
def test_break_even_decreases_with_idle_power(one, other):
    low, high = sorted((one, other))
    assert TAURUS_NODES.sleep.break_even_s(high) <= TAURUS_NODES.sleep.break_even_s(low)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DvfsState("x", speed=0), "speed of the DVFS state 'x' is 0"),
        (lambda: DvfsState("x", speed=1.1), "speed of the DVFS state 'x' is 1.1"),
        (lambda: DvfsState("x", gpu_cap=0), "gpu_cap of the DVFS state 'x' is 0"),
        (lambda: DvfsState("x", cpu_dynamic=-0.1), "cpu_dynamic of the DVFS state 'x' is -0.1"),
        (lambda: clock_slowdown(1.5, 0.5), "beta is 1.5; it must be a number from 0 to 1"),
        (lambda: CapCurve("x", -1, 1), "a of the cap curve 'x' is -1"),
        (lambda: GPU_CAP_CURVES["V100"].slowdown(0.0), "r is 0.0"),
        (lambda: break_even_beta(100, 1.0, 200), "is below full speed"),
        (lambda: SleepStates(-1, 1, 1, 1, 1), "sleep_w is -1"),
        (lambda: SleepStates(1, 1, 1, math.inf, 1), "wake_s is inf"),
    ],
)
def test_invalid_arguments(make, message):
    with pytest.raises(InputError, match=message):
        make()


TAURUS, POLARIS, THETA = (PowerModel.preset(name) for name in ("taurus", "polaris", "theta"))
MODELS = [TAURUS, POLARIS, THETA, PowerModel.preset("mira"), PowerModel.preset("cooley")]


def jobs_of(nodes, **columns):
    n = len(nodes)
    return JobTable(job_id=range(1, n + 1), submit_s=[0] * n, runtime_s=[600] * n, nodes=nodes, **columns)


def tables(jobs, model, use=None, **options):
    use = use or ConstantUtilization()
    return level_tables(jobs, job_power_w(jobs, model, use), model.group(), use, **options)


def test_full_load_on_taurus_equals_the_measurements():
    table = tables(jobs_of([3], beta=[1.0]), TAURUS)
    assert table.names[:2] == ("full", "89.0 %")
    assert table.factor[0, [0, 1, 12]].tolist() == pytest.approx([1, 1 / 0.89, 1 / 0.45])
    assert (table.power_w[0, [0, 1, 12]] / 3).tolist() == pytest.approx([190.7, 171.0, 125.9])


def test_half_load_scales_power_above_idle():
    table = tables(jobs_of([1]), TAURUS, ConstantUtilization(0.5))
    assert table.power_w[0, 1] == pytest.approx(95 + 0.5 * (171.0 - 95))


def test_beta_of_a_job_overrides_the_model():
    table = tables(jobs_of([1, 1, 1], beta=[0.0, 1.0, np.nan]), TAURUS)
    assert table.factor[:, 12].tolist() == pytest.approx([1, 1 / 0.45, 1 + 0.5 * (1 / 0.45 - 1)])
    stated = tables(jobs_of([1, 1, 1], beta=[0.0, 1.0, np.nan]), TAURUS, beta=0.2)
    assert stated.factor[2, 12] == pytest.approx(1 + 0.2 * (1 / 0.45 - 1))


def test_gpu_caps_on_polaris():
    table = tables(jobs_of([2]), POLARIS)
    assert table.names == ("full", "GPUs 350 W", "GPUs 300 W", "GPUs 250 W", "GPUs 200 W")
    assert (table.power_w[0] / 2).tolist() == pytest.approx([1919 - 4 * less for less in (0, 50, 100, 150, 200)])
    assert table.factor[0].tolist() == pytest.approx(GPU_CAP_CURVES["V100"].slowdown([1, 0.875, 0.75, 0.625, 0.5]))


def test_caps_above_the_power_of_a_job_have_no_effect():
    # At half load a GPU draws 62 + 169 = 231 W: caps of 350, 300 and 250 W do not bind.
    table = tables(jobs_of([4]), POLARIS, ConstantUtilization(1.0, 0.5))
    assert (table.factor[0, :4] == 1).all()
    assert (table.power_w[0, :4] == table.power_w[0, 0]).all()
    assert table.factor[0, 4] == pytest.approx(GPU_CAP_CURVES["V100"].slowdown(200 / 231))
    assert table.power_w[0, 0] - table.power_w[0, 4] == pytest.approx(4 * 4 * 31)


def test_measured_power_is_split_like_the_model():
    # Half of the model's power above idle: a GPU then draws 62 + 169 W.
    half = 432 + (1919 - 432) / 2
    table = tables(jobs_of([1], power_w=[half]), POLARIS)
    assert table.power_w[0].tolist() == pytest.approx([half, half, half, half, half - 4 * 31])


def test_conversion_losses_are_scaled():
    from dataclasses import replace

    from kilowait.energy.power import AffineLoss, Conversion

    group = replace(POLARIS.group(), conversion=Conversion((AffineLoss("PSU", 10, 0.8),)))
    model = replace(POLARIS, groups=(group,))
    table = tables(jobs_of([1]), model)
    assert table.power_w[0, [0, 4]].tolist() == pytest.approx([(1919 + 10) / 0.8, (1919 - 800 + 10) / 0.8])
    assert table.factor[0].tolist() == pytest.approx(tables(jobs_of([1]), POLARIS).factor[0].tolist())


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
@given(
    st.lists(st.integers(1, 64), min_size=1, max_size=5),
    st.floats(0, 1),
    st.floats(0, 1),
    st.one_of(st.none(), st.floats(0, 1)),
    st.one_of(st.none(), st.floats(0, 3000)),
)
def test_lower_states_are_slower_and_draw_less(model, nodes, cpu, gpu, beta, watts):
    columns = {} if beta is None else {"beta": [beta] * len(nodes)}
    if watts is not None:
        columns["power_w"] = [watts * count for count in nodes]
    table = tables(jobs_of(nodes, **columns), model, ConstantUtilization(cpu, gpu))
    assert table.factor.shape == table.power_w.shape == (len(nodes), len(model.group().levels))
    assert (table.factor[:, 0] == 1).all()
    assert (np.diff(table.factor, axis=1) >= -1e-12).all()
    assert (np.diff(table.power_w, axis=1) <= 1e-9).all()
    assert (table.power_w >= 0).all()


@given(st.floats(0, 1), st.floats(1, 3))
def test_best_level_has_the_lowest_energy(beta, limit):
    table = tables(jobs_of([1], beta=[beta]), TAURUS)
    chosen = best_level(table, limit)[0]
    energy = (table.factor * table.power_w)[0]
    assert table.factor[0, chosen] <= limit
    assert energy[chosen] == energy[table.factor[0] <= limit].min()


def test_best_level_with_slowdown_limit_and_freed_power():
    table = tables(jobs_of([1, 1], beta=[0.0, 0.5]), TAURUS)
    assert best_level(table).tolist() == [12, 3]  # 160.5 W * 1.120 = 179.8 J a second of work
    assert best_level(table, 1.1).tolist() == [12, 1]
    # Counting only power above idle, every state saves energy: power falls faster than speed.
    assert best_level(table, freed_w=95.0).tolist() == [12, 12]
    assert best_level(table, freed_w=1000.0).tolist() == [0, 0]
    assert table.relative_energy()[0, 12] == pytest.approx(125.9 / 190.7)
    assert table.relative_energy(1000.0).tolist() == np.ones((2, 13)).tolist()


def test_no_jobs():
    empty = jobs_of([1])[:0]
    table = tables(empty, TAURUS)
    assert table.factor.shape == (0, 13)
    assert best_level(table).tolist() == []


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: level_tables(jobs_of([1]), [1.0, 2.0], TAURUS.group()), "one value for each of the 1 jobs"),
        (lambda: level_tables(jobs_of([1]), [np.nan], TAURUS.group()), r"power_w \[0\] is nan"),
        (lambda: level_tables(jobs_of([1]), [100.0], TAURUS.group(), beta=2.0), "beta"),
        (lambda: DvfsTable(("full",), np.ones((1, 2)), np.ones((1, 2))), "both must be"),
        (lambda: DvfsTable(("full",), np.full((1, 1), 1.5), np.ones((1, 1))), "DVFS state 0 is full speed"),
        (lambda: DvfsTable(("a", "b"), np.array([[1, 0.5]]), np.ones((1, 2))), "factor"),
        (lambda: best_level(DvfsTable(("full",), np.ones((1, 1)), np.ones((1, 1))), 0.5), "most_slowdown is 0.5"),
    ],
)
def test_invalid_table_arguments(make, message):
    with pytest.raises(InputError, match=message):
        make()
