"""The real libraries, where an environment has them: KILOWAIT_SDV_PYTHON and KILOWAIT_RTF_PYTHON name its Python."""

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
    found = os.environ.get(variable)
    if not found:
        pytest.skip(f"{variable} does not name a Python that has the library")
    return found


def fitted(name: str, jobs: JobTable, **more: object) -> Generator:
    return fit_generator(jobs, name, seed=3, python=python_of(name), **QUICK.get(name, {"epochs": 1}), **more)


@pytest.fixture(scope="module", params=EXTERNAL_GENERATORS)
def generator(request):
    """Each of them, fitted once."""
    return fitted(request.param, log())


@pytest.mark.slow
def test_laws(generator, tmp_path):
    """Those of all generators, in one go: every sample starts a Python and loads a library."""
    real, made = log(), generator.sample(700, seed=2)
    assert len(made) == 700 and set(made.columns) == set(real.columns)
    for column in ("nodes", "estimate_s", "gpus", "queue", "status"):
        assert set(made[column].tolist()) <= set(real[column].tolist()), column
    assert (made["runtime_s"] - made["estimate_s"]).max() <= (real["runtime_s"] - real["estimate_s"]).max()
    assert (made["runtime_s"] >= 0).all() and (np.diff(made["submit_s"]) >= 0).all()
    assert "user" not in made.labels and set(made["user"].tolist()) <= set(range(1, 13))
    assert 0 < np.isnan(made["energy_j"]).mean() < 1 and np.nanmin(made["energy_j"]) >= 0
    generator.save(tmp_path / "kept")
    again = load_generator(tmp_path / "kept", allow_pickle_with=generator.settings.python)
    assert same(again.sample(700, seed=2), made)
    assert not same(again.sample(700, seed=3), made)


@pytest.mark.slow
def test_fitting_again_gives_the_same_and_is_seen_to_go_on(generator):
    heard = []
    again = fitted(generator.name, log(), progress=lambda what, share: heard.append(share))
    assert heard[0] == 0 and (max(heard) == 1 or generator.name == "sdv:GaussianCopula")  # which has no bar
    assert same(again.sample(50, seed=5), generator.sample(50, seed=5))


@pytest.mark.slow
@pytest.mark.parametrize("name", EXTERNAL_GENERATORS)
def test_a_log_with_the_least_there_is(name):
    whole = log(150)
    real = JobTable(
        job_id=whole["job_id"], **{column: whole[column] for column in ("submit_s", "runtime_s", "nodes")}
    )
    made = fitted(name, real).sample(200)
    assert made.columns == real.columns and np.array_equal(made["estimate_s"], made["runtime_s"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["realtabformer"])
def test_looking_out_for_copies(name):
    """Its own guard, which samples while it learns."""
    settings = {**QUICK[name], "n_critic": 1}
    made = fit_generator(log(400), name, python=python_of(name), **settings).sample(100)
    assert len(made) == 100
