"""The synthetic-training benchmark, with a few synthetic jobs."""

import json

import pytest
from benchmarks.reproduce import __main__ as reproduce
from benchmarks.reproduce import batch_learning
from benchmarks.reproduce import synthetic_training as table

from kilowait.errors import InputError, UnknownNameError
from kilowait.evaluation.comparison import split
from kilowait.jobs import JobTable

PATH = "lublin:2000:32:1.0"
PLAN = table.Plan(
    {"made": PATH},
    models=("bootstrap",),
    algos=("cma-es",),
    search={"generations": 2, "population": 4, "windows": 2, "window_jobs": 100},
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The results of all cells, computed in this process."""
    out = tmp_path_factory.mktemp("cells")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_learning, "WINDOWS", 6)
        patch.setattr(batch_learning, "WINDOW_JOBS", 100)
        for cell in PLAN.cells():
            table.run_cell(cell, PLAN, out)
    return out


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(batch_learning, "WINDOWS", 6)
    monkeypatch.setattr(batch_learning, "WINDOW_JOBS", 100)


def test_plan_lists_generators_first():
    assert [str(cell) for cell in PLAN.cells()] == [
        "made-fit-bootstrap",
        "made-rules",
        "made-cma-es-real-0",
        "made-cma-es-bootstrap-0",
        "made-cma-es-bootstrap+real-0",
    ]
    assert [cell.model for cell in PLAN.cells()] == ["bootstrap", "", "", "bootstrap", "bootstrap"]


def test_generator_is_fitted_to_training_jobs_only(folder):
    train = split(batch_learning.workload(PATH)[0], validation=0.1).train
    synthetic_jobs = JobTable.from_parquet(folder / "made-bootstrap.parquet")
    assert len(synthetic_jobs) == len(train) == 1200
    assert set(synthetic_jobs["runtime_s"]) <= set(train["runtime_s"])  # resampled weeks of these jobs


def test_agents_are_compared_with_real_training_data_and_the_best_policy(folder):
    results = table.table_of(PLAN, folder)
    log_result = results["logs"]["made"]["cma-es"]
    rows = log_result["rows"]
    assert results["missing"] == [] and list(rows) == ["real", "bootstrap", "bootstrap+real"]
    for row in rows.values():
        assert row["of_real"] == pytest.approx(row["mean_bsld"] / rows["real"]["mean_bsld"])
        assert row["of_best_rule"] == pytest.approx(row["mean_bsld"] / log_result["best_rule_mean_bsld"])
    provenance = json.loads((folder / "made-cma-es-bootstrap-0.json").read_text())["provenance"]
    assert provenance["synthetic_share"] == 1.0 and provenance["trained_on_jobs"] == 0
    output = table.text(results)
    assert "made, CMA-ES, bootstrap alone" in output and "made, CMA-ES, bootstrap and real" in output
    assert "loss above 10 % with synthetic jobs alone: " in output


def test_saved_cells_are_reused_and_missing_cells_reported(folder, tmp_path):
    messages = []
    assert table.run(PLAN, folder, 1, messages.append) == [] and messages == ["0 cells in 1 processes"]
    results = table.table_of(PLAN, tmp_path)
    assert results["logs"] == {} and len(results["missing"]) == 4
    assert table.text(results).startswith("nothing is finished yet") and "4 cells are missing" in table.text(results)


def test_interrupted_cells_are_resumed(folder, monkeypatch):
    cell = table.Cell("made", "cma-es", "bootstrap", 0)
    before = json.loads(cell.file(folder).read_text())
    cell.file(folder).unlink()
    resume_arguments = []
    checkpoint_dir = table.agents.CheckpointDir
    monkeypatch.setattr(
        table.agents,
        "CheckpointDir",
        lambda *args, resume: resume_arguments.append(resume) or checkpoint_dir(*args, resume),
    )
    table.run_cell(cell, PLAN, folder)
    assert resume_arguments == [True] and json.loads(cell.file(folder).read_text())["values"] == before["values"]


def test_failed_generator_fit_skips_dependent_cells(tmp_path, monkeypatch):
    completed = []

    def run_or_fail(cell, plan, folder):
        if cell.task == "fit":
            raise InputError("no")
        completed.append(str(cell))
        return str(cell)

    class SerialPool:
        """A process pool that runs tasks in this process."""

        def __init__(self, *_, **__):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

        def submit(self, function, *args):
            future = table.Future()
            try:
                future.set_result(run_or_fail(*args))
            except InputError as problem:
                future.set_exception(problem)
            return future

    monkeypatch.setattr(table, "ProcessPoolExecutor", SerialPool)
    messages = []
    failed = table.run(PLAN, tmp_path, 2, messages.append)
    assert completed == ["made-rules", "made-cma-es-real-0"]
    assert [str(cell) for cell in failed] == [
        "made-fit-bootstrap",
        "made-cma-es-bootstrap-0",
        "made-cma-es-bootstrap+real-0",
    ]
    assert any("made-fit-bootstrap failed" in line for line in messages)


def test_results_of_other_settings_are_rejected(folder, tmp_path):
    plan = table.Plan({"made": PATH}, models=(), algos=("ppo",), steps=100)
    (tmp_path / "made-ppo-real-0.judged.json").write_text(json.dumps({"values": [1.0], "steps": 50}))
    with pytest.raises(InputError, match="is of 50 steps, and this table of 100; name --steps 50"):
        table.table_of(plan, tmp_path)


def test_unknown_names_are_errors(capsys, tmp_path):
    with pytest.raises(UnknownNameError, match="did you mean 'copula'"):
        table.Plan({}, models=("copola",))
    with pytest.raises(UnknownNameError, match="unknown learner 'saf'"):
        table.Plan({}, algos=("saf",))
    (tmp_path / "swf").mkdir()
    status = reproduce.main(["synthetic-training", "--data", str(tmp_path), "--logs", "Thetta"])
    assert status == 2 and "did you mean 'Theta'" in capsys.readouterr().err
