"""Saved predictors: loading, calibration, model cards, and errors."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import numpy as np
import pytest

from kilowait.errors import InputError
from kilowait.jobs import JobTable
from kilowait.predict.dataset import Dataset, make_dataset
from kilowait.predict.explanation import explain
from kilowait.predict.forest import BoostingSettings, ForestSettings
from kilowait.predict.job_history import from_log
from kilowait.predict.models import PredictionModel
from kilowait.predict.predictor import Predictor, fit, load
from kilowait.predict.scores import score
from kilowait.predict.targets import energy, power, wait
from kilowait.predict.walk_forward import OVERRUN, PLANNED
from tests.predict.example_logs import DAY, repetitive_log

SETTINGS = {"forest": ForestSettings(trees=10, leaves=31), "boosting": BoostingSettings(trees=30, leaves=7, rate=0.2)}


def with_queues(jobs: JobTable, names=("short", "long")) -> JobTable:
    """The jobs with two named queues."""
    columns = {name: jobs[name] for name in jobs.columns}
    return JobTable(labels={"queue": names}, **{**columns, "queue": (jobs["user"] == 1).astype(int)})


def dataset_of(jobs: JobTable) -> Dataset:
    return make_dataset(jobs, from_log(jobs), 16)


def fitted_predictor(name: str = "forest", jobs: JobTable | None = None) -> Predictor:
    model = PredictionModel.of(name)
    dataset = dataset_of(repetitive_log() if jobs is None else jobs)
    return fit(dataset, model, nodes=16, data="habits", settings=SETTINGS.get(model.family))


def later_jobs(seed: int = 1) -> JobTable:
    """Jobs of the same site three months later, with unknown users."""
    jobs = repetitive_log(seed)
    return jobs.with_columns(submit_s=jobs["submit_s"] + 90 * DAY, user=jobs["user"] + 4 * (jobs["user"] == 2))


@pytest.mark.parametrize("name", ["forest", "forest:quantile:0.9", "boosting:median", "random-forest", "last2"])
def test_save_and_load(tmp_path, name):
    predictor = fitted_predictor(name)
    predictor.save(tmp_path)
    loaded = load(tmp_path)
    assert loaded.card == predictor.card
    dataset = dataset_of(later_jobs())
    before, after = predictor.predict(dataset), loaded.predict(dataset)
    for part in ("value", "low", "median", "high"):
        np.testing.assert_array_equal(getattr(after, part), getattr(before, part))
        assert (getattr(after, part) <= 3600).all()
    assert (after.low <= after.median).all() and (after.median <= after.high).all()


@pytest.mark.parametrize("name", ["forest", "boosting:median", "last2"])
def test_coverage_on_later_jobs(name):
    dataset = dataset_of(repetitive_log(jobs=2700))
    high = fitted_predictor(name, repetitive_log(jobs=2700)[:1350]).predict(dataset).high
    covered = (dataset.target.values <= high * 1.011)[1350:].mean()
    assert covered == pytest.approx(0.9, abs=0.05)


@pytest.mark.parametrize("name", ["forest", "forest:geomean", "boosting:median", "last2"])
def test_columns(name):
    dataset = dataset_of(repetitive_log(jobs=2700))
    predictor = fitted_predictor(name, repetitive_log(jobs=2700)[:1350])
    columns, predicted = predictor.columns(dataset), predictor.predict(dataset)
    np.testing.assert_array_equal(columns["estimate_s"], predicted.value)
    np.testing.assert_array_equal(columns["limit_s"], np.full(2700, 3600.0))
    assert (columns["planned_s"] <= predicted.high).all() and (columns["planned_s"] < predicted.high).any()
    assert (predicted.high <= columns["overrun_planned_s"]).all() and (columns["overrun_planned_s"] <= 3600).all()
    calibrated = slice(1215, 1350)
    for bound, level in (("planned_s", PLANNED), ("overrun_planned_s", OVERRUN)):
        covered = (dataset.target.values <= columns[bound] * 1.011)[calibrated].mean()
        assert covered == pytest.approx(level, abs=0.06)  # 135 jobs, many with equal run times
    assert ("expected_inverse_runtime" in columns) == name.startswith("forest")
    partial_requests = dataset.jobs.with_columns(limit_s=np.where(dataset.jobs["user"] == 0, np.nan, 3600.0))
    limit_s = predictor.columns(dataset_of(partial_requests))["limit_s"]
    np.testing.assert_array_equal(np.isnan(limit_s), dataset.jobs["user"] == 0)


def test_model_card():
    card = fitted_predictor().card
    assert (card.target, card.unit, card.data, card.nodes) == ("runtime", "s", "habits", 16)
    assert card.calibration_jobs == 90 and 700 < card.jobs <= 810
    assert set(card.errors) == {"forest", "request", "last2", "class-median", "recent"}
    assert card.errors["forest"]["accuracy"] > card.errors["last2"]["accuracy"]
    assert card.coverage["0.9"] == pytest.approx(0.9, abs=0.1)
    assert sum(card.importance.values()) == pytest.approx(1)
    assert [row["month"] for row in card.drift] == [1] and card.drift[0]["jobs"] == 450
    assert card.settings["trees"] == 10 and card.requests
    assert "no record of any single user" in card.personal and "2 at least" in card.personal
    assert "everyone_count" not in card.features and "user_count" in card.features
    assert fitted_predictor("last2").card.features == ()


def test_trees_do_not_depend_on_the_calibration_jobs():
    jobs = repetitive_log()
    changed = jobs.with_columns(runtime_s=np.where(jobs["job_id"] >= 810, 7.0, jobs["runtime_s"]))
    one, other = fitted_predictor(jobs=jobs), fitted_predictor(jobs=changed)
    values = one.rows(dataset_of(jobs))
    np.testing.assert_array_equal(one.trees.weights(values), other.trees.weights(values))
    assert one.card.errors["forest"] != other.card.errors["forest"]


def test_queues_are_matched_by_name():
    predictor = fitted_predictor(jobs=with_queues(repetitive_log()))
    assert predictor.card.codes == {"queue": ("short", "long")}
    assert "names of queues" in predictor.card.personal
    column = predictor.card.features.index("queue")
    codes = predictor.rows(dataset_of(with_queues(repetitive_log())))[:, column]
    assert set(codes) == {0.0, 1.0}
    columns = {name: repetitive_log()[name] for name in repetitive_log().columns}
    renumbered = JobTable(
        labels={"queue": ("long", "short")}, **columns, queue=(repetitive_log()["user"] != 1).astype(int)
    )
    np.testing.assert_array_equal(predictor.rows(dataset_of(renumbered))[:, column], codes)
    unknown_codes = predictor.rows(dataset_of(with_queues(repetitive_log(), ("short", "huge"))))[:, column]
    assert np.isnan(unknown_codes[codes == 1]).all() and (unknown_codes[codes == 0] == 0).all()


def test_unknown_users():
    dataset = dataset_of(later_jobs()[:1])
    predicted = fitted_predictor().predict(dataset)
    assert 1 <= predicted.value[0] <= 3600
    assert len(fitted_predictor().predict(dataset_of(later_jobs()[:0])).value) == 0


def test_constant_and_zero_run_times():
    for runtime_s in (0.0, 77.0):
        constant = repetitive_log().with_columns(runtime_s=np.full(900, runtime_s))
        for name in ("forest", "boosting:mean", "last2"):
            predicted = fitted_predictor(name, constant).predict(dataset_of(constant))
            assert predicted.value[-1] == pytest.approx(max(runtime_s, 1.0 if name != "last2" else 0.0), rel=0.02)


def test_other_targets(tmp_path):
    jobs = repetitive_log().with_columns(energy_j=repetitive_log()["runtime_s"] * 200.0)
    times = from_log(jobs)
    for target in (wait(jobs, times), energy(jobs, times)):
        dataset = make_dataset(jobs, times, 16, target)
        predictor = fit(dataset, PredictionModel.of("forest"), nodes=16, data="habits", settings=SETTINGS["forest"])
        predictor.save(tmp_path)
        predicted = load(tmp_path).predict(dataset)
        assert predictor.card.target == target.name
        assert np.isfinite(predicted.value).all()
    with pytest.raises(InputError, match="predicts energy, not runtime"):
        predictor.predict(dataset_of(jobs))


def test_unsuitable_jobs():
    queue_predictor = fitted_predictor(jobs=with_queues(repetitive_log()))
    with pytest.raises(InputError, match=r"lack \d+ of \d+ features.*queue.*columns of habits"):
        queue_predictor.predict(dataset_of(later_jobs()))
    jobs = later_jobs()
    without_requests = jobs.with_columns(estimate_s=jobs["runtime_s"])
    with pytest.raises(
        InputError, match="these jobs have no walltime requests, and the predictor uses those of habits"
    ):
        fitted_predictor().predict(dataset_of(without_requests))
    with pytest.raises(InputError, match="last2 uses no features; use predict with a dataset"):
        fitted_predictor("last2").predict_rows(np.zeros((1, 0)), np.zeros(1), np.zeros(1))


def test_logs_too_short():
    with pytest.raises(InputError, match="known for 10 of the last 10 jobs.*at least 20"):
        fitted_predictor(jobs=repetitive_log()[:100])
    with pytest.raises(InputError, match="runtime is known for 0 of the last 0 jobs"):
        fitted_predictor(jobs=repetitive_log()[:0])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "card.json").unlink(), "contains no predictor: it has no card.json"),
        (lambda folder: (folder / "card.json").write_text("{"), "card.json is damaged"),
        (lambda folder: (folder / "card.json").write_text("{}"), "is not a predictor's model card"),
        (lambda folder: rewrite(folder, format=9, version="3.0"), "format 9, written by kilowait 3.0.*fit it again"),
        (lambda folder: rewrite(folder, drop="seed"), "card.json: seed is missing"),
        (lambda folder: (folder / "trees.txt").write_text("tree"), "trees.txt is missing or was changed"),
        (lambda folder: (folder / "leaves.npz").unlink(), "leaves.npz is missing"),
        (lambda folder: rewrite(folder, features=["nodes"], importance={}), "trees of .* features and a card of 1"),
    ],
    ids=[
        "no card",
        "truncated card",
        "another file",
        "another version",
        "missing field",
        "trees",
        "leaves",
        "features",
    ],
)
def test_damaged_folders(tmp_path, damage, message):
    fitted_predictor().save(tmp_path)
    damage(tmp_path)
    with pytest.raises(InputError, match=message):
        load(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodes": 0}, "nodes is 0; it must be a whole number, at least 1"),
        ({"nodes": "many"}, "nodes is 'many'"),
        ({"unit": "W"}, "unit is 'W'; that of runtime is s"),
        ({"target": "fame"}, "target is 'fame'; it must be one of runtime"),
        ({"model": "forest:mode"}, "model: unknown point estimate"),
        ({"model": None}, "model is null; it must be text"),
        ({"first_s": 1e10}, "first_s is 10000000000.0, after last_s"),
        ({"unix_zero_s": -9e10}, "unix_zero_s is .* not dates"),
        ({"features": ["nodes", "nodes"]}, "features has a name twice"),
        ({"features": ["fame"]}, "features has 'fame', which is not the name of a feature"),
        ({"importance": {"fame": 0.5}}, "importance has 'fame', which is not in features"),
        ({"errors": {"forest": {"jobs": 3}}}, r"errors.forest.accuracy is missing"),
        ({"drift": [None]}, r"drift\[0\] is null"),
        ({"codes": {"queue": "short"}}, "codes.queue is 'short'; it must be a list"),
        ({"power": {"labels": "guessed"}}, "power.labels is 'guessed'"),
        ({"files": {}}, "files lacks leaves.npz, levels.npz, trees.txt"),
        ({"files": {"../card.json": "0"}}, "files lacks"),
        ({"data": "x" * 6000}, "data has 6,000 characters"),
        ({"calibration_jobs": 7}, r"levels.npz: levels has the shape \(90,\); it must be \(7,\)"),
    ],
)
def test_invalid_fields_of_the_card_are_errors(tmp_path, changes, message):
    fitted_predictor().save(tmp_path)
    rewrite(tmp_path, **changes)
    with pytest.raises(InputError, match=rf"{tmp_path}.*{message}.*fit it again"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        ([0.5, 0.1], "is not in ascending order"),
        ([0.1, np.nan], "has the value nan"),
        ([-3.0, 0.1], "has the value -3.0"),
        ([0.1, 7.0], "has the value 7.0"),
    ],
)
def test_invalid_levels_are_errors(tmp_path, levels, message):
    replace(fitted_predictor(), levels=np.array(levels)).save(tmp_path)
    rewrite(tmp_path, calibration_jobs=2)
    with pytest.raises(InputError, match=f"levels.npz: levels {message}.*fit it again"):
        load(tmp_path)


def test_links_and_pipes_are_errors(tmp_path):
    for kind in ("link", "pipe"):
        folder = tmp_path / kind
        folder.mkdir()
        fitted_predictor("last2").save(folder)
        (folder / "levels.npz").rename(tmp_path / "elsewhere")
        if kind == "link":
            (folder / "levels.npz").symlink_to(tmp_path / "elsewhere")
        else:
            os.mkfifo(folder / "levels.npz")
        with pytest.raises(InputError, match=f"levels.npz is a {kind}; a regular file is needed"):
            load(folder)


def rewrite(folder, drop=None, **changes):
    card = json.loads((folder / "card.json").read_text())
    card |= changes
    card.pop(drop, None)
    (folder / "card.json").write_text(json.dumps(card))


def test_no_folder(tmp_path):
    with pytest.raises(InputError, match="there is no folder .*kilowait predict fit TRACE --out"):
        load(tmp_path / "none")


def test_card_is_plain_data():
    card = fitted_predictor().card
    json.dumps(card.errors)
    assert replace(card, seed=1) != card


def metered(jobs: JobTable) -> JobTable:
    """The jobs with the measured power of 110, 150 or 190 W of each user's queue."""
    watts = np.choose(jobs["user"] % 3, [110.0, 150.0, 190.0])
    columns = {name: jobs[name] for name in jobs.columns}
    return JobTable(labels={"queue": ("a", "b", "c")}, **columns, queue=jobs["user"] % 3, power_w=watts)


def unmetered(jobs: JobTable) -> JobTable:
    columns = {name: jobs[name] for name in jobs.columns if name != "power_w"}
    return JobTable(labels=jobs.labels, **columns)


def metered_dataset(jobs: JobTable, target=power) -> Dataset:
    times = from_log(jobs)
    return make_dataset(jobs, times, 16, target(jobs, times, require_measured=False))


@pytest.mark.parametrize("target", [power, energy])
@pytest.mark.parametrize("name", ["forest", "boosting:median"])
def test_predictor_of_a_metered_log_predicts_an_unmetered_log(tmp_path, name, target):
    model = PredictionModel.of(name)
    jobs = metered(repetitive_log())
    fit(metered_dataset(jobs, target), model, nodes=16, data="m", settings=SETTINGS[model.family]).save(tmp_path)
    predictor = load(tmp_path)
    later = metered(repetitive_log(seed=1))
    hidden = metered_dataset(unmetered(later), target)
    assert not hidden.has_measured_values
    predicted = predictor.predict(hidden)
    shown = metered_dataset(later, target)
    truth = shown.target.values
    assert score(predicted.value, truth).accuracy > score(predictor.predict(shown).value, truth).accuracy - 0.1
    covered = (truth <= predicted.high * 1.03).mean()
    assert 0.8 < covered <= 1 and (predicted.low <= predicted.high).all()
    explanation = explain(predictor, hidden, 700)
    assert explanation.prediction.value[0] == predicted.value[700]
    assert "no job of this log was measured" in explanation.anchor_text
    assert not any(part.name.startswith("target_") for part in explanation.parts)


def test_unmetered_model_does_not_change_predictions_on_metered_logs(tmp_path):
    dataset = metered_dataset(metered(repetitive_log()))
    predictor = fit(dataset, PredictionModel.of("forest"), nodes=16, data="m", settings=SETTINGS["forest"])
    alone = replace(predictor, unmetered=None)
    np.testing.assert_array_equal(predictor.predict(dataset).value, alone.predict(dataset).value)
    hidden = metered_dataset(unmetered(metered(repetitive_log(seed=1))))
    with pytest.raises(InputError, match="none of these 900 jobs has a measured power.*fit it again, with forest"):
        alone.predict(hidden)


def test_baselines_need_measured_power_and_say_so():
    predictor = fit(metered_dataset(metered(repetitive_log())), PredictionModel.of("recent"), nodes=16, data="m")
    assert predictor.unmetered is None
    with pytest.raises(InputError, match="this predictor .recent, fitted on m. needs earlier values"):
        predictor.predict(metered_dataset(unmetered(metered(repetitive_log(seed=1)))))


def test_changed_files_of_the_unmetered_model_are_rejected(tmp_path):
    dataset = metered_dataset(metered(repetitive_log()))
    fit(dataset, PredictionModel.of("forest"), nodes=16, data="m", settings=SETTINGS["forest"]).save(tmp_path)
    path = tmp_path / "unmetered_trees.txt"
    path.write_text(path.read_text() + " ")
    with pytest.raises(InputError, match="unmetered_trees.txt is missing or was changed"):
        load(tmp_path)
