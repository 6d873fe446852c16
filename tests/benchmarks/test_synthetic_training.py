"""The table of agents trained on generated jobs, on a few made jobs."""

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
    """All cells, done in this process."""
    place = tmp_path_factory.mktemp("cells")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_learning, "WINDOWS", 6)
        patch.setattr(batch_learning, "WINDOW_JOBS", 100)
        for cell in PLAN.cells():
            table.work(cell, PLAN, place)
    return place


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(batch_learning, "WINDOWS", 6)
    monkeypatch.setattr(batch_learning, "WINDOW_JOBS", 100)


def test_generators_come_first_and_every_way_to_train_is_there():
    assert [str(cell) for cell in PLAN.cells()] == [
        "made-fit-bootstrap",
        "made-rules",
        "made-cma-es-real-0",
        "made-cma-es-bootstrap-0",
        "made-cma-es-bootstrap+real-0",
    ]
    assert [cell.model for cell in PLAN.cells()] == ["bootstrap", "", "", "bootstrap", "bootstrap"]


def test_a_generator_sees_training_jobs_alone_and_gives_as_many(folder):
    train = split(batch_learning.workload(PATH)[0], validation=0.1).train
    made = JobTable.from_parquet(folder / "made-bootstrap.parquet")
    assert len(made) == len(train) == 1200
    assert set(made["runtime_s"]) <= set(train["runtime_s"])  # weeks of these jobs, drawn again


def test_agents_stand_beside_the_one_trained_on_real_jobs_and_the_best_rule(folder):
    found = table.table_of(PLAN, folder)
    one = found["logs"]["made"]["cma-es"]
    rows = one["rows"]
    assert found["missing"] == [] and list(rows) == ["real", "bootstrap", "bootstrap+real"]
    for row in rows.values():
        assert row["of_real"] == pytest.approx(row["mean_bsld"] / rows["real"]["mean_bsld"])
        assert row["of_best_rule"] == pytest.approx(row["mean_bsld"] / one["best_rule_mean_bsld"])
    told = json.loads((folder / "made-cma-es-bootstrap-0.json").read_text())["provenance"]
    assert told["synthetic_share"] == 1.0 and told["trained_on_jobs"] == 0
    said = table.text(found)
    assert "made, CMA-ES, bootstrap alone" in said and "made, CMA-ES, bootstrap and real" in said
    assert "loss above 10 % with synthetic jobs alone: " in said


def test_saved_cells_are_reused_and_missing_cells_reported(folder, tmp_path):
    said = []
    assert table.run(PLAN, folder, 1, said.append) == [] and said == ["0 cells in 1 processes"]
    found = table.table_of(PLAN, tmp_path)
    assert found["logs"] == {} and len(found["missing"]) == 4
    assert table.text(found).startswith("nothing is finished yet") and "4 cells are missing" in table.text(
        found
    )


def test_interrupted_cells_are_resumed(folder, monkeypatch):
    cell = table.Cell("made", "cma-es", "bootstrap", 0)
    before = json.loads(cell.file(folder).read_text())
    cell.file(folder).unlink()
    gone_on = []
    keeping = table.agents.CheckpointDir
    monkeypatch.setattr(
        table.agents,
        "CheckpointDir",
        lambda *given, resume: gone_on.append(resume) or keeping(*given, resume),
    )
    table.work(cell, PLAN, folder)
    assert gone_on == [True] and json.loads(cell.file(folder).read_text())["values"] == before["values"]


def test_a_generator_that_cannot_be_fitted_leaves_the_rest_to_be_done(tmp_path, monkeypatch):
    done = []

    def fails(cell, plan, folder):
        if cell.what == "fit":
            raise InputError("no")
        done.append(str(cell))
        return str(cell)

    class Here:
        """A pool of no processes."""

        def __init__(self, *_, **__):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

        def submit(self, function, *given):
            future = table.Future()
            try:
                future.set_result(fails(*given))
            except InputError as problem:
                future.set_exception(problem)
            return future

    monkeypatch.setattr(table, "ProcessPoolExecutor", Here)
    said = []
    left = table.run(PLAN, tmp_path, 2, said.append)
    assert done == ["made-rules", "made-cma-es-real-0"]
    assert [str(cell) for cell in left] == [
        "made-fit-bootstrap",
        "made-cma-es-bootstrap-0",
        "made-cma-es-bootstrap+real-0",
    ]
    assert any("made-fit-bootstrap failed" in line for line in said)


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
