"""Vector environment: copies, threads, snapshots, observation values, input errors."""

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from kilowait.cluster import Cluster
from kilowait.energy.power import ConstantUtilization, PowerModel
from kilowait.envs.observation_spec import CARBON_UNIT
from kilowait.envs.observation_spec import ENERGY_FEATURES as FEATURES
from kilowait.envs.observation_spec import FORECAST_LEAD_H as LEAD_H
from kilowait.errors import InputError, UnknownNameError
from kilowait.series import Series
from tests.envs.energy_workloads import energy, quiet, signals


def test_vectorized_copies_match_single_environments():
    jobs = quiet(300, 1)
    many = energy(jobs, copies=7, threads=2, autoreset_mode=AutoresetMode.NEXT_STEP, **signals())
    first = np.array([0, 11, 80, 140, 200, 239, 240])
    observation, _ = many.reset(options={"first": first})
    singles = [energy(jobs, **signals()) for _ in first]
    alone = [env.reset(options={"first": at})[0] for env, at in zip(singles, first, strict=True)]
    ended_copies = np.zeros(7, bool)
    random = np.random.default_rng(2)
    for _ in range(1000):
        for i in np.flatnonzero(~ended_copies):
            assert all(np.array_equal(observation[name][i], alone[i][name][0]) for name in observation)
        actions = np.array([random.choice(np.flatnonzero(m)) if m.any() else 0 for m in observation["mask"]])
        observation, reward, over, _, _ = many.step(actions)
        for i in np.flatnonzero(~ended_copies):
            alone[i], r, o, _, _ = singles[i].step(actions[i : i + 1])
            assert (r[0], o[0]) == (reward[i], over[i])
        ended_copies |= over
        if ended_copies.all():
            break
    assert ended_copies.all()


def test_episodes_are_reproducible_on_any_number_of_threads():
    def run(threads):
        vec = energy(copies=5, threads=threads, episode_jobs=20)
        observation, _ = vec.reset(seed=3)
        outputs = [observation["jobs"].copy()]
        for i in range(120):
            mask = observation["mask"]
            observation, reward, *_ = vec.step(np.argmax(np.cumsum(mask, axis=1) > (i % 3), axis=1))
            outputs += [observation["jobs"], reward]
        return np.concatenate([part.ravel() for part in outputs])

    assert np.array_equal(run(1), run(3))


@pytest.mark.parametrize("mode", AutoresetMode)
def test_autoreset_modes(mode):
    vec = energy(copies=2, autoreset_mode=mode, episode_jobs=12)
    observation, _ = vec.reset(seed=1)
    over = np.zeros(2, bool)
    while not over.any():
        observation, reward, over, _, infos = vec.step(observation["mask"].argmax(axis=1))
    i = int(over.argmax())
    assert infos["_episode"][i] and infos["episode"]["l"][i] > 0
    if mode is AutoresetMode.SAME_STEP:
        assert observation["mask"][i].any() and not infos["final_obs"]["mask"][i].any()
        assert infos["final_obs"]["summary"][i].any()
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
    vec = energy(power_controls="dvfs=1.5")
    first, _ = vec.reset(options={"first": 0})
    while vec.simulator.buffers.copies["shown"][0] < 5:
        allowed = np.flatnonzero(vec.simulator.buffers.mask[0])
        vec.step(allowed[-1:])
    again, _ = vec.reset(options={"first": 0})
    assert all(np.array_equal(first[name], again[name]) for name in first)


def test_restored_snapshot_continues_identically():
    def steps(vec, count, observation):
        outputs = []
        for i in range(count):
            nth = np.argmax(np.cumsum(observation["mask"], axis=1) > i % 4, axis=1)
            observation, reward, *_ = vec.step(nth)
            outputs.append((observation["jobs"].tobytes(), observation["summary"].tobytes(), reward.tobytes()))
        return outputs, observation

    one = energy(copies=3, episode_jobs=20, **signals())
    observation, _ = one.reset(seed=9)
    _, observation = steps(one, 37, observation)
    saved = one.snapshot()
    after, _ = steps(one, 200, observation)
    other = energy(copies=3, episode_jobs=20, **signals())
    assert steps(other, 200, other.restore(saved))[0] == after
    with pytest.raises(InputError, match="another size"):
        energy(copies=2, episode_jobs=20, **signals()).restore(saved)


def test_arrival_rate_scales_submissions():
    vec = energy()
    vec.set_arrival_rate(4.0)
    vec.reset(options={"first": 0})
    arrivals, given = vec.simulator.states.job_state["earliest_s"][0], quiet(200, 0)["submit_s"][:60]
    assert arrivals - arrivals[0] == pytest.approx((given - given[0]) / 4)


def test_a_forbidden_action_is_replaced_and_counted():
    vec = energy(episode_jobs=20)
    vec.reset(seed=0)
    over, wrong = False, 0
    while not over:
        mask = vec.simulator.buffers.mask[0]
        wrong += 1
        *_, infos = stepped = vec.step(np.array([int(np.argmin(mask))]))
        over = bool(stepped[2][0])
    assert infos["episode"]["invalid"][0] == infos["episode"]["l"][0] == wrong


def test_power_and_node_observation_values():
    jobs = quiet(200, 0)[:2].with_columns(
        submit_s=np.array([0.0, 1000.0]),
        nodes=np.array([4, 6]),
        runtime_s=np.array([2000.0, 100.0]),
        power_w=np.array([600.0, 900.0]),
        beta=np.array([0.5, 0.5]),
    )
    vec = energy(jobs, episode_jobs=2, power_controls="sleep=timeout:100+dvfs=1.2")
    vec.reset()
    observation, *_ = vec.step(np.array([0]))
    while observation["jobs"][0, 0].any() == 0:
        observation, *_ = vec.step(np.array([vec.observation_spec.actions - 3]))
    # At 1,000 s: 4 nodes run at 600 W, 12 sleep.
    row = dict(zip(FEATURES, observation["jobs"][0, 0].tolist(), strict=True))
    table = next(iter(vec.power_setup.tables.values()))
    may = table.factor[1] <= 1.2
    relative = (table.factor * table.power_w)[1] / 900
    full_w = PowerModel.preset("taurus").group().full_w
    assert row["draw"] == pytest.approx(900 / (6 * full_w))
    assert row["stretch"] == pytest.approx(table.factor[1, may].max() - 1)
    assert row["saving"] == pytest.approx(1 - relative[may].min(), abs=1e-6)
    summary = dict(zip(vec.observation_spec.summary, observation["summary"][0].tolist(), strict=True))
    assert summary["power"] == pytest.approx((600 + 12 * 9.75) / (16 * full_w))
    assert (summary["idle"], summary["asleep"], summary["in_transition"]) == (0.0, 0.75, 0.0)
    assert "carbon" not in summary


@pytest.mark.parametrize("forecast", ["perfect", "persistence", "noisy:DE"])
def test_signal_observation_values(forecast):
    signal_series = signals()
    vec = energy(power_controls="none", forecast=forecast, **signal_series)
    vec.reset(options={"first": 0})
    carbon_values = set()
    for _ in range(80):
        now = float(vec.simulator.states.clock["now"][0, 0])
        summary = dict(zip(vec.observation_spec.summary, vec.simulator.buffers.summary[0].tolist(), strict=True))
        zero = vec.jobs["submit_s"][0]
        forecast_s = zero + (now - zero) // 900 * 900
        for name, unit in (("carbon", CARBON_UNIT), ("price", 100.0)):
            series = signal_series[name]
            start = max(forecast_s - 7 * 86400, vec.power_setup.signals.all()[0].start_s)
            weekly_mean = max(abs(float(series.mean(start, max(forecast_s, start + 86400)))), 1.0)
            assert summary[name] == pytest.approx(float(series.at(now)) / unit, abs=1e-6)
            assert summary[f"{name}_now"] == pytest.approx(float(series.at(now)) / weekly_mean, rel=1e-5, abs=1e-6)
            ahead = [summary[f"{name}_{hours}h"] for hours in LEAD_H]
            true_means = [float(series.mean(forecast_s, forecast_s + 3600 * hours)) / weekly_mean for hours in LEAD_H]
            if forecast == "perfect":
                assert ahead == pytest.approx(true_means, rel=1e-5, abs=1e-6)
            else:
                assert ahead != pytest.approx(true_means, rel=1e-3)
                assert ahead == pytest.approx(true_means, abs=3.0)
        carbon_values.add(summary["carbon"])
        vec.step(np.array([int(vec.simulator.buffers.mask[0].argmax())]))
    assert len(carbon_values) > 3


def test_power_by_name_file_or_object(tmp_path):
    path = tmp_path / "carbon.csv"
    path.write_text(
        "time (UTC),gCO2/kWh\n"
        + "".join(f"2022-01-{d:02d} {h:02d}:00,{100 + h}\n" for d in range(1, 15) for h in range(24))
    )
    jobs = quiet(200, 0)
    vec = energy(jobs, power="taurus", carbon=path, log_start="2022-01-01", repeat_signals=True)
    vec.reset(options={"first": 0})
    hour = int(jobs["submit_s"][0] // 3600)
    carbon = vec.simulator.buffers.summary[0, vec.observation_spec.summary.index("carbon")]
    assert carbon == pytest.approx((100 + hour) / CARBON_UNIT)
    auto = energy(jobs, cluster=Cluster.preset("polaris"), power="auto", utilization=ConstantUtilization(0.5, 0.5))
    assert auto.power_setup.model.name == "polaris"


def test_input_errors():
    with pytest.raises(InputError, match="leave shift out"):
        energy(power_controls="shift=carbon_time:6h")
    with pytest.raises(InputError, match="without hours"):
        energy(power_controls="budget=100%:90%@8-20")
    with pytest.raises(InputError, match=r"cooling='pue:1.2'"):
        energy(cooling="economiser")
    with pytest.raises(InputError, match="repeat_signals=True"):
        energy(carbon=Series([0, 3600], [100], "g/kWh"))
    with pytest.raises(InputError, match="no power model is known"):
        energy(power="auto")
    with pytest.raises(UnknownNameError, match="energy"):
        energy(reward={"enrgy": 1})
    with pytest.raises(UnknownNameError, match="persistence"):
        energy(forecast="oracle", **signals())
    with pytest.raises(InputError, match="Gpu-v0"):
        energy(cluster=Cluster.preset("gpu-mixed"))
    with pytest.raises(InputError, match="hold_s of 1 or more"):
        energy(hold_s=1e-9)
    with pytest.raises(InputError, match="always has"):
        energy(hold=False)
