"""Reproduction of published GPU tables: FGD on openb by seed, Gavel's rounds, and the tables of the docs."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from benchmarks.reproduce import gavel, gavel_shares, openb
from benchmarks.reproduce.data_paths import Sources
from benchmarks.reproduce.gavel_rounds import View, Work, completion_times
from benchmarks.reproduce.go_random import GoRandom
from benchmarks.reproduce.gpu_packing import RULES, Kinds, Nodes, used_after_each
from benchmarks.reproduce.max_min_shares import max_min_shares
from scipy.optimize import linprog

from kilowait.cluster.gpu_catalogue import Throughputs, read_throughputs
from kilowait.errors import InputError


def quiet(line: str) -> None:
    pass


@pytest.fixture(scope="module")
def sources(data_dir: Path) -> Sources:
    return Sources.find(str(data_dir))


@pytest.fixture(scope="module")
def page(project: Path) -> str:
    return (project / "docs" / "reproduce.md").read_text(encoding="utf-8")


# -- Go's generator ---------------------------------------------------------------------------------


def test_go_random_numbers_of_seed_1():
    generator = GoRandom(1)
    assert generator.word() == 5_577_006_791_947_779_410
    assert [generator.below(100) for _ in range(5)] == [87, 47, 59, 81, 18]


def test_shuffle_and_permutation_depend_on_the_seed():
    values, other_values = list(range(50)), list(range(50))
    GoRandom(42).shuffle(values)
    GoRandom(43).shuffle(other_values)
    assert sorted(values) == sorted(GoRandom(42).permutation(50)) == list(range(50))
    assert values != other_values


# -- packing ----------------------------------------------------------------------------------------


def used_milli(rule: str, pods: list[int], needs: list[list[int]], gpus: list[int], cpu: int = 64_000) -> list[int]:
    count = len(needs)
    kinds = Kinds(np.array(needs), np.full(count, 1 / count), np.full(count, 1 / count))
    size = len(gpus)
    nodes = Nodes(np.full(size, cpu), np.full(size, 100), np.array(gpus), np.zeros(size, np.int64))
    return used_after_each(RULES.index(rule), np.array(pods), np.ones(len(pods), int), kinds, nodes).tolist()


HALF, WHOLE, PAIR = [1000, 1, 500, 1], [1000, 1, 1000, 1], [1000, 2, 1000, 1]


@pytest.mark.parametrize("rule", RULES)
def test_placement_never_exceeds_the_resources(rule):
    assert used_milli(rule, [0] * 5, [HALF], [2])[-1] == 2000
    assert used_milli(rule, [0] * 5, [HALF], [2], cpu=3000)[-1] == 1500, "cores run out"
    assert used_milli(rule, [0], [[1000, 1, 500, 2]], [2])[-1] == 0, "no GPU of that type"


@pytest.mark.parametrize("rule", ["GpuPacking", "BestFit", "FGD", "capacity"])
def test_halves_share_a_gpu(rule):
    assert used_milli(rule, [0, 0, 1], [HALF, PAIR], [3])[-1] == 3000


def test_fgd_keeps_the_two_gpu_node_for_the_pair():
    assert used_milli("FGD", [0, 1], [WHOLE, PAIR], [2, 1]) == [1000, 3000]


def test_runs_with_equal_seeds_are_equal():
    pods = [0, 1, 0, 0, 1] * 4
    assert used_milli("Random", pods, [HALF, PAIR], [2] * 9) == used_milli("Random", pods, [HALF, PAIR], [2] * 9)


def test_openb_is_reproduced_by_seed(sources, monkeypatch):
    monkeypatch.setattr(openb, "SEEDS", range(42, 44))
    result = openb.results(sources, quiet, lists=["default"])["default"]
    for (name, rule), published in openb.BY_SEED.items():
        if name == "default":
            assert result[rule] == list(published[:2]), rule
    assert np.all(np.greater(result["capacity"], result["FGD"]))


def test_missing_list_is_named(tmp_path):
    (tmp_path / "swf").mkdir()
    with pytest.raises(InputError, match="openb_node_list_gpu_node"):
        openb.results(Sources.find(str(tmp_path)), quiet)


@pytest.mark.slow
def test_openb_equals_published_values_and_docs(sources, page):
    """One list with the fast scores, and the held-out list; the command prints all."""
    result = openb.results(sources, quiet, ("default", openb.HELD_OUT), ("Random", "BestFit", "FGD", openb.OURS))
    for rule in ("Random", "BestFit", "FGD"):
        mean = float(np.mean(result["default"][rule]))
        published = openb.PUBLISHED[rule][0]
        assert mean == pytest.approx(float(published), abs=0.6)
        assert re.search(rf"^{rule} +{published} +{mean:.2f} ", page, re.MULTILINE), (rule, mean)
    for name, values in result.items():
        fgd, ours = (float(np.mean(values[rule])) for rule in ("FGD", openb.OURS))
        assert re.search(rf"^{name} +{fgd:.2f} +{ours:.2f} ", page, re.MULTILINE), (name, fgd, ours)
        assert ours > fgd


# -- shares -----------------------------------------------------------------------------------------


def view(speed: list[list[float]], remaining: list[float] | None = None) -> View:
    jobs = len(speed)
    steps = np.ones(jobs) if remaining is None else np.array(remaining)
    return View(list(range(jobs)), 0.0, np.zeros(jobs), steps, np.array(speed))


@pytest.mark.parametrize("jobs", [1, 7, 107, 150])
def test_max_min_shares_equal_a_linear_program(jobs):
    worth = np.random.default_rng(jobs).uniform(0.2, 3.0, (jobs, 3))
    workers = np.array([36.0, 36.0, 36.0])
    result = max_min_shares(worth, workers)
    assert result.sum(axis=0) == pytest.approx(np.minimum(result.sum(axis=0), workers), abs=1e-6)
    assert np.all(result.sum(axis=1) < 1 + 1e-6)
    limits = np.zeros((2 * jobs + 3, 3 * jobs + 1))
    for job in range(jobs):
        limits[job, 3 * job : 3 * job + 3], limits[job, -1] = -worth[job], 1.0
        limits[jobs + job, 3 * job : 3 * job + 3] = 1.0
    for kind in range(3):
        limits[2 * jobs + kind, kind : 3 * jobs : 3] = 1.0
    bound = np.concatenate([np.zeros(jobs), np.ones(jobs), workers])
    best = linprog(np.append(np.zeros(3 * jobs), -1.0), limits, bound)
    assert (worth * result).sum(axis=1).min() == pytest.approx(-best.fun, abs=1e-6)


def test_fifo_assigns_v100_then_p100_then_k80():
    shares = gavel_shares.Fifo(seed=3)(view([[1.0, 1.0, 1.0]] * 30))
    assert shares.sum(axis=0).tolist() == [0, 0, 30]
    assert gavel_shares.fifo_by_type(view([[1.0, 3.0, 2.0]] * 120)).sum(axis=0).tolist() == [36, 36, 36]


def test_las_gives_full_shares_if_gpus_suffice():
    assert gavel_shares.las(view([[1.0, 1.0, 1.0]] * 10)).sum(axis=1) == pytest.approx(1.0)
    assert gavel_shares.las(view([[1.0, 1.0, 1.0]] * 216)).sum(axis=1) == pytest.approx(0.5)


def test_allox_runs_the_short_job_first_and_keeps_running_jobs(monkeypatch):
    monkeypatch.setattr(gavel_shares, "WORKERS", (0, 0, 1))
    policy = gavel_shares.AlloX()
    assert policy(view([[1.0, 1.0, 1.0]] * 2, remaining=[100.0, 1.0]))[:, 2].tolist() == [0, 1]
    assert policy(view([[1.0, 1.0, 1.0]] * 2, remaining=[0.5, 1.0]))[:, 2].tolist() == [0, 1]


# -- rounds -----------------------------------------------------------------------------------------


def test_single_job_runs_whole_steps_per_round():
    """2.5 steps a round: two a round, in 288 s."""
    speed = 2.5 / 360
    work = Work(np.array([0.0, 1e9, 2e9]), np.array([5.0, 1.0, 1.0]), np.full((3, 3), speed))
    completion_s = completion_times(work, gavel_shares.las_by_type, 0, 1, seed=0, by_type=True, strict=False)
    assert completion_s == pytest.approx(5 / speed)


def test_arriving_job_waits_for_shares():
    """Shares of time 0 may be recomputed at 360; then 1,920 s must pass, which is the case at 2,520."""
    arrival = np.array([0.0, 10.0, 400.0, 1e9, 2e9])
    work = Work(arrival, np.array([9e3, 100.0, 100.0, 1.0, 1.0]), np.ones((5, 3)))
    completion_s = completion_times(work, gavel_shares.fifo_by_type, 0, 3, seed=0, by_type=True, strict=True)
    assert completion_s.tolist() == [9000.0, 360.0 - 10.0 + 100.0, 2520.0 - 400.0 + 100.0]


def test_too_few_jobs_are_an_error():
    work = Work(np.array([0.0, 1.0]), np.array([1e9, 1.0]), np.ones((2, 3)))
    with pytest.raises(InputError, match="generate more"):
        completion_times(work, gavel_shares.las, 0, 1, seed=0, by_type=False, strict=False)


@pytest.fixture(scope="module")
def speeds(data_dir: Path) -> Throughputs:
    return read_throughputs(data_dir / "gpu" / "gavel_throughputs.json.gz")


def test_low_rate_reproduces_the_published_value(speeds):
    work = gavel.work_at(0.4, speeds)
    assert gavel.mean_hours("AlloX", work) == pytest.approx(17.58, abs=0.005)


def test_published_fifo_by_type_is_below_the_possible_minimum(speeds):
    work = gavel.work_at(0.4, speeds, gavel.LAST)
    minimum_h = (work.steps[gavel.FIRST :, None] / work.speed[gavel.FIRST :]).min(axis=1).mean() / 3600
    assert minimum_h > gavel.PUBLISHED["FIFO by type"][0]


def test_rows_by_type_are_close_to_published_values(speeds, page):
    work = gavel.work_at(5.2, speeds)
    for name in ("AlloX", "LAS by type"):
        hours = gavel.mean_hours(name, work)
        assert hours == pytest.approx(gavel.PUBLISHED[name][-1], rel=0.05)
        row = next(line for line in page.splitlines() if line.startswith(f"5.2 jobs/h {name} "))
        assert f"{hours:.2f}" in row.split()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rate"), [("FIFO", 4.0), ("FIFO by type", 4.0), ("LAS", 4.0), ("AlloX", 0.4), ("LAS by type", 0.4)]
)
def test_gavel_equals_published_values_and_docs(sources, page, name, rate):
    """The fast cells; the command prints all."""
    speeds = read_throughputs(sources.file("gpu/gavel_throughputs.json.gz", "it is Gavel's"))
    hours = gavel.mean_hours(name, gavel.work_at(rate, speeds))
    published = gavel.PUBLISHED[name][gavel.RATES.index(rate)]
    assert re.search(rf"^{rate} jobs/h {name} +{published:.2f} +{hours:.2f} ", page, re.MULTILINE), hours
    assert hours == pytest.approx(published, rel=0.05)
