"""Predictors that are kept: the same before and after, honest about errors, clear about what they cannot do."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from kilowait.errors import InputError
from kilowait.jobs import JobTable
from kilowait.predict.boosting import BoostingSettings
from kilowait.predict.conformal import fit
from kilowait.predict.dataset import Dataset, make_dataset
from kilowait.predict.forest import ForestSettings
from kilowait.predict.known_times import from_log
from kilowait.predict.models import PredictionModel
from kilowait.predict.predictor import Predictor, load
from kilowait.predict.runtime import OVERRUN, PLANNED
from kilowait.predict.targets import energy, wait
from tests.predict.example_logs import DAY, habits

SETTINGS = {
    "forest": ForestSettings(trees=10, leaves=31),
    "boosting": BoostingSettings(trees=30, leaves=7, rate=0.2),
}


def queued(jobs: JobTable, names=("short", "long")) -> JobTable:
    """With two queues, by what the log calls them."""
    columns = {name: jobs[name] for name in jobs.columns}
    return JobTable(labels={"queue": names}, **{**columns, "queue": (jobs["user"] == 1).astype(int)})


def dataset(jobs: JobTable) -> Dataset:
    return make_dataset(jobs, from_log(jobs), 16)


def fitted(name: str = "forest", jobs: JobTable | None = None) -> Predictor:
    model = PredictionModel.of(name)
    requested = dataset(habits() if jobs is None else jobs)
    return fit(requested, model, nodes=16, data="habits", settings=SETTINGS.get(model.family))


def later(seed: int = 1) -> JobTable:
    """The same site, months later; four more users nobody has heard of."""
    jobs = habits(seed)
    return jobs.with_columns(
        submit_s=jobs["submit_s"] + 90 * DAY, user=jobs["user"] + 4 * (jobs["user"] == 2)
    )


@pytest.mark.parametrize(
    "name", ["forest", "forest:quantile:0.9", "boosting:median", "random-forest", "last2"]
)
def test_what_is_kept_is_what_is_read(tmp_path, name):
    predictor = fitted(name)
    predictor.save(tmp_path)
    again = load(tmp_path)
    assert again.card == predictor.card
    requested = dataset(later())
    before, after = predictor.predict(requested), again.predict(requested)
    for part in ("value", "low", "middle", "high"):
        np.testing.assert_array_equal(getattr(after, part), getattr(before, part))
        assert (getattr(after, part) <= 3600).all()
    assert (after.low <= after.median).all() and (after.median <= after.high).all()


@pytest.mark.parametrize("name", ["forest", "boosting:median", "last2"])
def test_bounds_hold_on_later_jobs(name):
    whole = dataset(habits(jobs=2700))
    high = fitted(name, habits(jobs=2700)[:1350]).predict(whole).high
    held = (whole.target.values <= high * 1.011)[1350:].mean()
    assert held == pytest.approx(0.9, abs=0.05)


@pytest.mark.parametrize("name", ["forest", "forest:geomean", "boosting:median", "last2"])
def test_columns_for_a_replay(name):
    whole = dataset(habits(jobs=2700))
    predictor = fitted(name, habits(jobs=2700)[:1350])
    told, predicted = predictor.columns(whole), predictor.predict(whole)
    np.testing.assert_array_equal(told["estimate_s"], predicted.value)
    np.testing.assert_array_equal(told["limit_s"], np.full(2700, 3600.0))
    assert (told["planned_s"] <= predicted.high).all() and (told["planned_s"] < predicted.high).any()
    assert (predicted.high <= told["overrun_planned_s"]).all() and (told["overrun_planned_s"] <= 3600).all()
    calibrated = slice(1215, 1350)
    for bound, level in (("planned_s", PLANNED), ("overrun_planned_s", OVERRUN)):
        held = (whole.target.values <= told[bound] * 1.011)[calibrated].mean()
        assert held == pytest.approx(level, abs=0.06)  # of 135 jobs, many alike
    assert ("expected_inverse_runtime" in told) == name.startswith("forest")
    unasked = whole.jobs.with_columns(limit_s=np.where(whole.jobs["user"] == 0, np.nan, 3600.0))
    limit_s = predictor.columns(dataset(unasked))["limit_s"]
    np.testing.assert_array_equal(np.isnan(limit_s), whole.jobs["user"] == 0)


def test_the_card_says_what_there_is_to_know():
    card = fitted().card
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
    assert fitted("last2").card.features == ()


def test_nothing_of_the_last_tenth_is_learned():
    jobs = habits()
    spoilt = jobs.with_columns(runtime_s=np.where(jobs["job_id"] >= 810, 7.0, jobs["runtime_s"]))
    one, other = fitted(jobs=jobs), fitted(jobs=spoilt)
    values = one.rows(dataset(jobs))
    np.testing.assert_array_equal(one.trees.weights(values), other.trees.weights(values))
    assert one.card.errors["forest"] != other.card.errors["forest"]


def test_queues_are_known_by_name():
    predictor = fitted(jobs=queued(habits()))
    assert predictor.card.codes == {"queue": ("short", "long")}
    assert "names of queues" in predictor.card.personal
    column = predictor.card.features.index("queue")
    default = predictor.rows(dataset(queued(habits())))[:, column]
    assert set(default) == {0.0, 1.0}
    columns = {name: habits()[name] for name in habits().columns}
    turned = JobTable(
        labels={"queue": ("long", "short")}, **columns, queue=(habits()["user"] != 1).astype(int)
    )
    np.testing.assert_array_equal(predictor.rows(dataset(turned))[:, column], default)
    new = predictor.rows(dataset(queued(habits(), ("short", "huge"))))[:, column]
    assert np.isnan(new[default == 1]).all() and (new[default == 0] == 0).all()


def test_users_nobody_has_heard_of():
    requested = dataset(later()[:1])
    predicted = fitted().predict(requested)
    assert 1 <= predicted.value[0] <= 3600
    assert len(fitted().predict(dataset(later()[:0])).value) == 0


def test_constant_and_zero_run_times():
    for runtime_s in (0.0, 77.0):
        constant = habits().with_columns(runtime_s=np.full(900, runtime_s))
        for name in ("forest", "boosting:mean", "last2"):
            predicted = fitted(name, constant).predict(dataset(constant))
            assert predicted.value[-1] == pytest.approx(
                max(runtime_s, 1.0 if name != "last2" else 0.0), rel=0.02
            )


def test_other_targets(tmp_path):
    jobs = habits().with_columns(energy_j=habits()["runtime_s"] * 200.0)
    times = from_log(jobs)
    for target in (wait(jobs, times), energy(jobs, times)):
        requested = make_dataset(jobs, times, 16, target)
        predictor = fit(
            requested, PredictionModel.of("forest"), nodes=16, data="habits", settings=SETTINGS["forest"]
        )
        predictor.save(tmp_path)
        predicted = load(tmp_path).predict(requested)
        assert predictor.card.target == target.name
        assert np.isfinite(predicted.value).all()
    with pytest.raises(InputError, match="predicts energy, not runtime"):
        predictor.predict(dataset(jobs))


def test_words_for_jobs_it_cannot_be_asked_of():
    with_queues = fitted(jobs=queued(habits()))
    with pytest.raises(InputError, match=r"lack \d+ of \d+ features.*queue.*columns of habits"):
        with_queues.predict(dataset(later()))
    bare = later()
    unasked = bare.with_columns(estimate_s=bare["runtime_s"])
    with pytest.raises(
        InputError, match="these jobs have no walltime requests, and the predictor uses those of habits"
    ):
        fitted().predict(dataset(unasked))
    with pytest.raises(InputError, match="last2 uses no features; use predict with a dataset"):
        fitted("last2").predict_rows(np.zeros((1, 0)), np.zeros(1), np.zeros(1))


def test_words_for_logs_too_short():
    with pytest.raises(InputError, match="known for 10 of the last 10 jobs.*at least 20"):
        fitted(jobs=habits()[:100])
    with pytest.raises(InputError, match="runtime is known for 0 of the last 0 jobs"):
        fitted(jobs=habits()[:0])


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: (folder / "card.json").unlink(), "contains no predictor: it has no card.json"),
        (lambda folder: (folder / "card.json").write_text("{"), "card.json is damaged"),
        (lambda folder: (folder / "card.json").write_text("{}"), "is not a predictor's model card"),
        (
            lambda folder: rewrite(folder, format=9, version="3.0"),
            "format 9, written by kilowait 3.0.*fit it again",
        ),
        (lambda folder: rewrite(folder, drop="seed"), "damaged .it lacks seed"),
        (
            lambda folder: (folder / "trees.txt").write_text("tree"),
            "trees.txt is missing or was changed",
        ),
        (lambda folder: (folder / "leaves.npz").unlink(), "leaves.npz is missing"),
        (
            lambda folder: rewrite(folder, features=["nodes"]),
            "trees of .* features and a card of 1",
        ),
    ],
    ids=[
        "no card",
        "half a card",
        "another file",
        "another version",
        "a field less",
        "trees",
        "leaves",
        "features",
    ],
)
def test_words_for_damaged_folders(tmp_path, spoil, words):
    fitted().save(tmp_path)
    spoil(tmp_path)
    with pytest.raises(InputError, match=words):
        load(tmp_path)


def rewrite(folder, drop=None, **changes):
    card = json.loads((folder / "card.json").read_text())
    card |= changes
    card.pop(drop, None)
    (folder / "card.json").write_text(json.dumps(card))


def test_no_folder(tmp_path):
    with pytest.raises(InputError, match="there is no folder .*kilowait predict fit TRACE --out"):
        load(tmp_path / "none")


def test_a_card_is_plain():
    card = fitted().card
    json.dumps(card.errors)
    assert replace(card, seed=1) != card
