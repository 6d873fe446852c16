"""Properties that every registered generator satisfies, and error messages."""

from __future__ import annotations

import json

import numpy as np
import pytest

from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.synth import GENERATORS, WhatIf, fit_generator, load_generator, offered_load
from kilowait.synth.conditions import parse_conditions
from kilowait.synth.generator import VERSION

BRIEF = {"steps": 3, "width": 16, "batch": 100}
TABLES = {"ctgan": BRIEF, "tvae": BRIEF, "copulagan": BRIEF, "diffusion": {**BRIEF, "draw_steps": 3}}
QUICK = {**TABLES, "transformer": {"passes": 1.5, "width": 16, "layers": 1}}
"""Settings for fast fits; the tested properties do not depend on the quality of a fit."""


def log(jobs: int = 600, seed: int = 0, **replaced: object) -> JobTable:
    """A log of users with repeated requests during the day; jobs end within a minute of their limit."""
    rng = np.random.default_rng(seed)
    user = rng.integers(0, 12, jobs)
    request = np.array([600.0, 3600.0, 7200.0, 43200.0])[(user + rng.integers(0, 2, jobs)) % 4]
    runtime = np.minimum(np.round(request * rng.random(jobs) * 1.2), request + rng.integers(0, 60, jobs))
    nodes = np.array([1, 2, 4, 16, 64])[(user + (rng.random(jobs) < 0.2)) % 5]
    day, hour = rng.integers(0, 40, jobs), rng.integers(8, 18, jobs)
    submit = np.sort(day * 86400 + hour * 3600 + rng.integers(0, 3600, jobs)).astype(float)
    columns = {
        "submit_s": submit,
        "runtime_s": runtime,
        "estimate_s": request,
        "nodes": nodes,
        "user": user,
        "account": user // 3,
        "queue": (request > 7200).astype(int),
        "gpus": nodes * (user % 2),
        "status": (runtime < request).astype(int),
        "energy_j": np.where(user == 3, np.nan, runtime * nodes * (300 + user)),
        **replaced,
    }
    labels = {"user": tuple(f"anna{number}" for number in range(12)), "queue": ("short", "long")}
    return JobTable(
        job_id=np.arange(1, jobs + 1),
        labels={name: texts for name, texts in labels.items() if columns.get(name) is not None},
        meta={"max_procs": 64, "source": "habits.swf"},
        **columns,
    )


@pytest.fixture(scope="module")
def fitted():
    """Each generator, fitted once to the log."""
    return {name: fit_generator(log(), name, seed=3, **QUICK.get(name, {})) for name in GENERATORS}


def same(one: JobTable, other: JobTable) -> bool:
    return one.columns == other.columns and all(
        np.array_equal(one[name], other[name], equal_nan=one[name].dtype.kind == "f") for name in one.columns
    )


@pytest.mark.parametrize("name", GENERATORS)
class TestGeneratorProperties:
    def test_same_seed_same_jobs(self, fitted, name):
        generator = fitted[name]
        assert same(generator.sample(300, seed=0), generator.sample(300, seed=0))
        assert not same(generator.sample(300, seed=0), generator.sample(300, seed=1))

    def test_refit_is_identical(self, fitted, name):
        refitted = fit_generator(log(), name, seed=3, **QUICK.get(name, {}))
        assert same(refitted.sample(200, seed=5), fitted[name].sample(200, seed=5))

    @pytest.mark.parametrize("jobs", [1, 250, 1500])
    def test_values_are_those_of_the_log(self, fitted, name, jobs):
        real, sample = log(), fitted[name].sample(jobs, seed=2)
        assert len(sample) == jobs
        assert set(sample.columns) == set(real.columns)
        for column in ("nodes", "estimate_s", "gpus", "queue", "status"):
            assert set(sample[column].tolist()) <= set(real[column].tolist()), column
        over_s = sample["runtime_s"] - sample["estimate_s"]
        assert over_s.max() <= (real["runtime_s"] - real["estimate_s"]).max()
        assert (sample["runtime_s"] >= 0).all()
        assert (np.diff(sample["submit_s"]) >= 0).all()
        assert sample.labels["queue"] == ("short", "long")
        assert sample.meta["max_procs"] == 64

    def test_users_are_renumbered(self, fitted, name):
        sample = fitted[name].sample(1500, seed=2)
        assert "user" not in sample.labels
        assert set(sample["user"].tolist()) <= set(range(1, 13))
        named = fit_generator(log(), name, keep_names=True, **QUICK.get(name, {})).sample(100)
        assert named.labels["user"] == log().labels["user"]

    def test_unknown_energy_stays_unknown(self, fitted, name):
        energy = fitted[name].sample(1500, seed=2)["energy_j"]
        assert 0 < np.isnan(energy).mean() < 0.5
        assert np.nanmin(energy) >= 0

    def test_save_and_load(self, fitted, name, tmp_path):
        generator = fitted[name]
        generator.save(tmp_path / "saved")
        assert same(load_generator(tmp_path / "saved").sample(400, seed=9), generator.sample(400, seed=9))
        card = json.loads((tmp_path / "saved" / "card.json").read_text())
        assert card["generator"] == name and card["seed"] == 3
        assert card["log"]["source"] == "habits.swf" and card["log"]["jobs"] == 600
        content = b"".join(path.read_bytes() for path in (tmp_path / "saved").iterdir())
        assert b"anna" not in content

    def test_conditions_are_met(self, fitted, name):
        wanted = {"queue": "long", "nodes": (1, 16), "hour": [8, 9, 10, 11, 12, 13]}
        sample = fitted[name].sample(40, seed=1, conditions=wanted)
        assert len(sample) == 40
        assert set(sample["queue"].tolist()) == {1}
        assert sample["nodes"].max() <= 16
        assert set((sample["submit_s"] // 3600 % 24).tolist()) <= set(range(8, 14))

    def test_progress_is_reported(self, fitted, name):
        shares: list[float] = []
        fitted[name].sample(300, progress=lambda what, share: shares.append(share))
        assert all(0 <= share <= 1 for share in shares) and shares == sorted(shares) and shares[-1] == 1

    def test_what_if_changes_are_met(self, fitted, name):
        changes = {"load": 0.4, "nodes": 128, "job_mix": {"nodes": {1: 0}}, "scale_jobs": {"user": {1: 2}}}
        sample = fitted[name].sample(days=14, seed=1, conditions={"queue": "short"}, what_if=WhatIf(**changes))
        assert offered_load(sample, 128) == pytest.approx(0.4, rel=1e-3)
        assert sample.meta["max_procs"] == 128 and sample["nodes"].min() > 1
        assert set(sample["queue"].tolist()) == {0}
        assert (np.diff(sample["submit_s"]) >= 0).all() and sample["submit_s"].min() >= log()["submit_s"].min()
        parts = fitted[name].tables(days=14, seed=1, conditions={"queue": "short"}, what_if=WhatIf(**changes))
        assert np.array_equal(np.concatenate([part["submit_s"] for part in parts]), sample["submit_s"])

    @pytest.mark.parametrize("constant", ["nodes", "estimate_s", "runtime_s", "user", "status", "queue"])
    def test_constant_columns(self, name, constant):
        real = log(150, **{constant: np.ones(150)})
        sample = fit_generator(real, name, **QUICK.get(name, {})).sample(200)
        assert set(sample[constant].tolist()) == {1}

    def test_log_with_the_minimum_of_columns(self, name):
        full_log = log(150)
        real = JobTable(
            job_id=full_log["job_id"], **{column: full_log[column] for column in ("submit_s", "runtime_s", "nodes")}
        )
        sample = fit_generator(real, name, **QUICK.get(name, {})).sample(200)
        assert sample.columns == real.columns
        assert np.array_equal(sample["estimate_s"], sample["runtime_s"])


def test_condition_on_requests_of_a_log_without_requests():
    runs = np.tile([60.0, 600.0, 6000.0], 50)
    generator = fit_generator(log(150, runtime_s=runs, estimate_s=runs), "bootstrap")
    sample = generator.sample(50, conditions={"estimate_s": (100, 1000)})
    assert set(sample["runtime_s"].tolist()) == {600.0} == set(sample["estimate_s"].tolist())


@pytest.mark.parametrize("name", GENERATORS)
def test_log_without_known_energy(name):
    real = log(150, energy_j=np.full(150, np.nan))
    sample = fit_generator(real, name, **QUICK.get(name, {})).sample(60, what_if=WhatIf(load=0.3, nodes=128))
    assert np.isnan(sample["energy_j"]).all()


def test_queues_without_names():
    full_log = log()
    real = JobTable(
        job_id=full_log["job_id"], **{name: full_log[name] for name in ("submit_s", "runtime_s", "nodes", "queue")}
    )
    generator = fit_generator(real, "bootstrap")
    assert set(generator.sample(30, conditions={"queue": "1"})["queue"].tolist()) == {1}
    with pytest.raises(InputError, match="queue=long: the log's queues have no names; their numbers are 0, 1"):
        generator.sample(10, conditions={"queue": "long"})
    with pytest.raises(InputError, match="nodes=many: 'many' is not a number"):
        generator.sample(10, conditions={"nodes": "many"})


def test_error_names_the_values_of_the_column(fitted):
    with pytest.raises(InputError, match="condition queue=7: no job of the log matches; its values are short, long"):
        fitted["bootstrap"].sample(10, conditions={"queue": 7})


def test_too_few_jobs():
    with pytest.raises(InputError, match="50 jobs are too few to learn a workload from; at least 100 are"):
        fit_generator(log(50), "copula")


def test_all_jobs_submitted_at_once():
    with pytest.raises(InputError, match="all 150 jobs are submitted at 0 s"):
        fit_generator(log(150, submit_s=np.zeros(150)), "copula")


def test_misspelt_names():
    with pytest.raises(UnknownNameError, match="unknown generator 'cupola'; did you mean 'copula'"):
        fit_generator(log(), "cupola")
    with pytest.raises(UnknownNameError, match="unknown setting of the generator bootstrap 'day'; did you mean 'days'"):
        fit_generator(log(), "bootstrap", day=7)


@pytest.mark.parametrize(
    ("model", "setting", "message"),
    [
        ("bootstrap", {"days": 0}, "blocks of 0 days"),
        ("copula", {"margin": 1}, "margin is 1; it must be at least 2 values"),
        ("transformer", {"width": 12}, "width is 12; it must be a multiple of 8"),
        ("transformer", {"draws": 0}, "draws is 0; it must be at least 1"),
        ("transformer", {"passes": 0}, "passes is 0; it must be above 0"),
        ("ctgan", {"steps": 0}, "steps is 0; it must be at least 1"),
        ("copulagan", {"batch": 9}, "batch is 9; it must be at least 10"),
        ("tvae", {"latent": 0}, "latent is 0; it must be at least 1"),
        ("tvae", {"likeness": 0}, "likeness is 0; it must be above 0"),
        ("diffusion", {"rate": -1.0}, "rate is -1.0; it must be above 0"),
        ("diffusion", {"draw_steps": 0}, "draw_steps is 0; it must be at least 1"),
    ],
)
def test_settings_out_of_range(model, setting, message):
    with pytest.raises(InputError, match=message):
        fit_generator(log(), model, **setting)


@pytest.mark.parametrize("jobs", [0, -3, 1.5, True, 10**20])
def test_invalid_number_of_jobs(fitted, jobs):
    with pytest.raises(InputError, match=f"the number of jobs is {jobs}; it must be a whole number from 1 to"):
        fitted["copula"].sample(jobs)


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        ({"queue": "lang"}, "unknown queue 'lang'; did you mean 'long'"),
        ({"quue": "long"}, "unknown condition 'quue'; did you mean 'queue'"),
        ({"nodes": 3}, "condition nodes=3: no job of the log matches; its values are 1, 2, 4, 16, 64"),
        ({"nodes": (65, 128)}, "condition nodes=65:128: no job of the log matches; its values are 1, 2, 4, 16, 64"),
        ({"nodes": (16, 2)}, "condition nodes=16:2: 16 is more than 2"),
        ({"hour": 24}, "condition hour=24: no job of the log matches; its values are 0 to 23"),
        ({"status": 7}, "condition status=7: no job of the log matches; its values are 0, 1"),
        (
            {"runtime_s": (1e7, 1e8)},
            r"condition runtime_s=1e\+07:1e\+08: no job of the log matches; its values are 0, 43258",
        ),
    ],
)
def test_impossible_conditions(fitted, conditions, message):
    with pytest.raises((InputError, UnknownNameError), match=message):
        fitted["bootstrap"].sample(10, conditions=conditions)


def test_condition_on_a_missing_column():
    generator = fit_generator(log(gpus=None), "copula")
    with pytest.raises(InputError, match="condition gpus=1: the log has no column gpus"):
        generator.sample(10, conditions={"gpus": 1})


def test_contradictory_conditions(fitted):
    message = r"conditions queue=long, estimate_s=600: 0 of [\d,]+ sampled jobs match them all, and 10 are requested"
    with pytest.raises(InputError, match=message):
        fitted["bootstrap"].sample(10, conditions={"queue": "long", "estimate_s": 600})


def test_parse_conditions():
    assert parse_conditions("nodes=1:16, queue=a/b") == {"nodes": (1.0, 16.0), "queue": ["a", "b"]}
    with pytest.raises(InputError, match="the conditions have 'nodes'; write column=value"):
        parse_conditions("nodes")
    with pytest.raises(InputError, match="'nodes=a:b', which is not a range"):
        parse_conditions("nodes=a:b")


class TestFolders:
    def test_folder_without_a_generator(self, tmp_path):
        with pytest.raises(InputError, match=r"has no card.json; give a folder written by kilowait synth fit"):
            load_generator(tmp_path)

    def test_other_format_version(self, fitted, tmp_path):
        fitted["copula"].save(tmp_path)
        card = tmp_path / "card.json"
        card.write_text(card.read_text().replace(f'"version": {VERSION}', '"version": 99'))
        with pytest.raises(InputError, match="has version 99 and this kilowait reads version"):
            load_generator(tmp_path)

    def test_damaged_card(self, fitted, tmp_path):
        fitted["copula"].save(tmp_path)
        (tmp_path / "card.json").write_text("{")
        with pytest.raises(InputError, match=r"card.json is damaged"):
            load_generator(tmp_path)

    @pytest.mark.parametrize("model", GENERATORS)
    def test_truncated_state(self, fitted, tmp_path, model):
        fitted[model].save(tmp_path)
        state = tmp_path / "state.npz"
        state.write_bytes(state.read_bytes()[:1000])
        with pytest.raises(InputError, match=r"state.npz is (damaged|missing)"):
            load_generator(tmp_path)


def test_bootstrap_copies_jobs():
    real, sample = log(), fit_generator(log(), "bootstrap").sample(600, seed=1)
    rows = set(zip(*(real[name].tolist() for name in ("nodes", "estimate_s", "runtime_s")), strict=True))
    assert set(zip(*(sample[name].tolist() for name in ("nodes", "estimate_s", "runtime_s")), strict=True)) <= rows
    assert set((sample["submit_s"] // 3600 % 24).tolist()) <= set(range(8, 18))


def test_bootstrap_of_days_keeps_weekdays():
    submit = log()["submit_s"]
    weekly = log(submit_s=np.sort(submit // 86400 // 2 * 7 * 86400 + submit % 86400))  # all on one weekday
    sample = fit_generator(weekly, "bootstrap", days=1).sample(600, seed=1)
    assert set((sample["submit_s"] // 86400 % 7).tolist()) == set((weekly["submit_s"] // 86400 % 7).tolist())


def test_copula_keeps_marginal_distributions_and_rank_correlations():
    real, sample = log(3000), fit_generator(log(3000), "copula").sample(20_000, seed=4)
    assert abs((sample["nodes"] == 16).mean() - (real["nodes"] == 16).mean()) < 0.02
    rank_correlations = [
        np.corrcoef(np.argsort(np.argsort(table["estimate_s"])), np.argsort(np.argsort(table["runtime_s"])))[0, 1]
        for table in (real, sample)
    ]
    assert abs(rank_correlations[0] - rank_correlations[1]) < 0.15 and rank_correlations[1] > 0.2
