"""Tests with the installed libraries; KILOWAIT_SDV_PYTHON and KILOWAIT_RTF_PYTHON name the Python that has them."""

from __future__ import annotations

import os

import numpy as np
import pytest

from kilowait.jobs import JobTable
from kilowait.synth import Generator, fit_generator, load_generator
from kilowait.synth.registry import EXTERNAL_GENERATORS
from tests.synth.test_generator import log, same

PYTHONS = {"sdv": "KILOWAIT_SDV_PYTHON", "realtabformer": "KILOWAIT_RTF_PYTHON"}
QUICK = {
    "sdv:GaussianCopula": {},
    "realtabformer": {"epochs": 2, "batch_size": 16, "n_critic": 0, "layers": 1, "width": 16, "heads": 2},
}


def python_of(name: str) -> str:
    variable = PYTHONS[name.partition(":")[0]]
    python = os.environ.get(variable)
    if not python:
        pytest.skip(f"{variable} does not name a Python that has the library")
    return python


def fitted(name: str, jobs: JobTable, **options: object) -> Generator:
    return fit_generator(jobs, name, seed=3, python=python_of(name), **QUICK.get(name, {"epochs": 1}), **options)


@pytest.fixture(scope="module", params=EXTERNAL_GENERATORS)
def generator(request):
    """Each external generator, fitted once."""
    return fitted(request.param, log())


@pytest.mark.slow
def test_generator_properties(generator, tmp_path):
    """The properties of all generators in one test, as every sample starts a Python and loads a library."""
    real, sample = log(), generator.sample(700, seed=2)
    assert len(sample) == 700 and set(sample.columns) == set(real.columns)
    for column in ("nodes", "estimate_s", "gpus", "queue", "status"):
        assert set(sample[column].tolist()) <= set(real[column].tolist()), column
    assert (sample["runtime_s"] - sample["estimate_s"]).max() <= (real["runtime_s"] - real["estimate_s"]).max()
    assert (sample["runtime_s"] >= 0).all() and (np.diff(sample["submit_s"]) >= 0).all()
    assert "user" not in sample.labels and set(sample["user"].tolist()) <= set(range(1, 13))
    assert 0 < np.isnan(sample["energy_j"]).mean() < 1 and np.nanmin(sample["energy_j"]) >= 0
    generator.save(tmp_path / "saved")
    loaded = load_generator(tmp_path / "saved", allow_pickle_with=generator.settings.python)
    assert same(loaded.sample(700, seed=2), sample)
    assert not same(loaded.sample(700, seed=3), sample)


@pytest.mark.slow
def test_refit_is_identical_and_reports_progress(generator):
    shares = []
    refitted = fitted(generator.name, log(), progress=lambda what, share: shares.append(share))
    assert shares[0] == 0 and (
        max(shares) == 1 or generator.name == "sdv:GaussianCopula"
    )  # the copula has no progress bar
    assert same(refitted.sample(50, seed=5), generator.sample(50, seed=5))


@pytest.mark.slow
@pytest.mark.parametrize("name", EXTERNAL_GENERATORS)
def test_log_with_the_minimum_of_columns(name):
    full_log = log(150)
    real = JobTable(
        job_id=full_log["job_id"], **{column: full_log[column] for column in ("submit_s", "runtime_s", "nodes")}
    )
    sample = fitted(name, real).sample(200)
    assert sample.columns == real.columns and np.array_equal(sample["estimate_s"], sample["runtime_s"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["realtabformer"])
def test_check_for_copied_rows(name):
    """The overfitting check of REaLTabFormer, which samples during training."""
    settings = {**QUICK[name], "n_critic": 1}
    sample = fit_generator(log(400), name, python=python_of(name), **settings).sample(100)
    assert len(sample) == 100
