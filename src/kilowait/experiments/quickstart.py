"""The quickstart: compare priority policies with a small trained agent on a synthetic workload, and write a report."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kilowait.cluster import Cluster
from kilowait.cluster.toml import to_dict
from kilowait.errors import InputError
from kilowait.evaluation.storage import check_writable, save_comparison
from kilowait.experiments.comparison.results import summarize_comparison
from kilowait.experiments.training.linear import BatchTrainer, BatchTraining, compare_agent
from kilowait.experiments.training.trainer import TrainingRun, windows_of_test_split
from kilowait.files import locks_output
from kilowait.report import check_page, need_matplotlib, write_report
from kilowait.synth import lublin

NODES, LOAD = 256, 0.95
POLICIES = ("fcfs", "sjf", "saf", "smallest", "f1", "lxf", "wfp3", "unicef")
TITLE = "kilowait quickstart: which job starts next?"

Steps = Callable[[int], AbstractContextManager[Callable[[str, bool], None]]]
"""Shows progress over a number of steps; see `kilowait.cli.console.steps`."""


@dataclass(frozen=True)
class QuickstartSize:
    """Size of the workload, of the training and of the comparison."""

    jobs: int
    generations: int
    population: int
    windows: int
    window_jobs: int


FULL_SIZE = QuickstartSize(jobs=300_000, generations=40, population=16, windows=32, window_jobs=1024)
FAST_SIZE = QuickstartSize(jobs=12_000, generations=6, population=8, windows=4, window_jobs=256)


@dataclass(frozen=True)
class QuickstartResult:
    """Files and results of a quickstart."""

    report: Path
    figures: Path
    agent: Path
    comparison: Path
    results: dict[str, Any]


@locks_output("out", inside=True)
def quickstart(
    out: Path,
    size: QuickstartSize,
    *,
    seed: int,
    command: list[str],
    date: str,
    say: Callable[[str], None],
    steps: Steps,
) -> QuickstartResult:
    """Generate a workload, train an agent on its first 80 %, compare it with policies on the rest, write the report.

    Folders of an earlier quickstart in `out` are replaced; other files are not changed.
    """
    need_matplotlib()
    folders = {name: out / name for name in ("agent", "comparison")}
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; name a folder with --out")
    for folder in folders.values():
        check_writable(folder, force=True)
    check_page(out / "report.html")
    say(f"1/4  generating {size.jobs:,} jobs for {NODES} nodes at a load of {LOAD} (seed {seed})")
    jobs = lublin(size.jobs, NODES, load=LOAD, seed=seed, estimates="rounded")
    cluster = Cluster.from_nodes(NODES)
    trace = f"Lublin-Feitelson model, {size.jobs:,} jobs, {NODES} nodes, load {LOAD}, rounded estimates, seed {seed}"
    training = BatchTraining(
        seed=seed,
        generations=size.generations,
        population=size.population,
        windows=size.windows,
        window_jobs=size.window_jobs,
    )
    trainer = BatchTrainer(training)
    test_windows = windows_of_test_split(jobs, size.window_jobs, seed=seed)
    say(f"2/4  training a linear agent with twelve weights on the first {int(0.8 * size.jobs):,} jobs")
    with steps(size.generations) as step:
        progress = lambda generation: step(  # noqa: E731
            f"candidates at {generation.training:.3f} of the start",
            generation.number % 10 == 0 or generation.number == generation.of,
        )
        agent, history = trainer.train(jobs, cluster, TrainingRun(trace, progress=progress))
    say(
        f"3/4  comparing it with {len(POLICIES)} policies on {len(test_windows)} windows of "
        f"{size.window_jobs:,} later jobs"
    )
    with steps(2 * len(POLICIES) + 1) as step:
        comparison = compare_agent(
            agent,
            POLICIES,
            jobs,
            cluster,
            training,
            trace=trace,
            clairvoyant=True,
            progress=lambda label: step(label, False),
        )
    results = summarize_comparison(comparison, training.objective, seed=seed)
    manifest = {"command": command, "date": date, "seeds": {"workload": seed, "training": seed, "comparison": seed}}
    scenario = {"trace": trace, "cluster": to_dict(cluster), "size": asdict(size)}
    trainer.save(folders["agent"], agent, history, scenario=scenario, results={}, manifest=manifest, force=True)
    save_comparison(
        folders["comparison"],
        [comparison],
        scenario={**scenario, "policy": [asdict(config) for config in comparison.policies]},
        results={"traces": [results]},
        manifest=manifest,
        force=True,
    )
    say("4/4  writing the report")
    result = QuickstartResult(out / "report.html", out / "figures", folders["agent"], folders["comparison"], results)
    write_report([result.comparison, result.agent], result.report, figures=result.figures, title=TITLE, seed=seed)
    return result
