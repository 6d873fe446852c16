"""Slowdown and power of every job in every DVFS state."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilowait.energy.power import (
    GPU_CAP_CURVES,
    ConstantUtilization,
    DvfsTable,
    PowerModel,
    best_level,
    job_power_w,
    level_tables,
)
from kilowait.errors import InputError
from kilowait.jobs import JobTable

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
def test_invalid_arguments(make, message):
    with pytest.raises(InputError, match=message):
        make()
