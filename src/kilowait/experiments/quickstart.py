"""The first thing people run: rules and a small agent on a workload made on the spot, and a page with pictures."""

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
from kilowait.experiments import train_batch
from kilowait.experiments.comparison_results import results_of
from kilowait.report import check_page, need_matplotlib, write_report
from kilowait.synth import lublin

__all__ = ["FAST", "FULL", "QuickstartResult", "QuickstartSize", "quickstart"]

NODES, LOAD = 256, 0.95
RULES = ("fcfs", "sjf", "saf", "smallest", "f1", "lxf", "wfp3", "unicef")
TITLE = "kilowait quickstart: who goes next?"

Steps = Callable[[int], AbstractContextManager[Callable[[str, bool], None]]]
"""Progress of a number of steps; see `kilowait.cli.console.steps`."""


@dataclass(frozen=True)
class QuickstartSize:
    """How much is done."""

    jobs: int
    generations: int
    population: int
    windows: int
    window_jobs: int


FULL = QuickstartSize(jobs=300_000, generations=40, population=16, windows=32, window_jobs=1024)
FAST = QuickstartSize(jobs=12_000, generations=6, population=8, windows=4, window_jobs=256)


@dataclass(frozen=True)
class QuickstartResult:
    """What a quickstart leaves behind."""

    report: Path
    figures: Path
    agent: Path
    comparison: Path
    results: dict[str, Any]


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
    """Make a workload, train an agent on its first 80 %, compare it with rules on the rest, write the report.

    Folders of an earlier quickstart in `out` are replaced, other files are left alone.
    """
    need_matplotlib()
    folders = {name: out / name for name in ("agent", "comparison")}
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; name a folder with --out")
    for folder in folders.values():
        check_writable(folder, force=True)
    check_page(out / "report.html")
    say(f"1/4  making {size.jobs:,} jobs for {NODES} nodes at a load of {LOAD} (seed {seed})")
    jobs = lublin(size.jobs, NODES, load=LOAD, seed=seed, estimates="rounded")
    cluster = Cluster.from_nodes(NODES)
    trace = f"Lublin-Feitelson model, {size.jobs:,} jobs, {NODES} nodes, load {LOAD}, rounded estimates, seed {seed}"
    how = train_batch.BatchTraining(
        seed=seed,
        generations=size.generations,
        population=size.population,
        windows=size.windows,
        window_jobs=size.window_jobs,
    )
    cut = train_batch.windows_of_test_split(jobs, size.window_jobs, seed=seed)
    say(f"2/4  training an agent of twelve weights on the first {int(0.8 * size.jobs):,} jobs")
    with steps(size.generations) as step:
        agent, history = train_batch.train(
            jobs,
            cluster,
            how,
            trace=trace,
            progress=lambda done: step(
                f"candidates at {done.training:.3f} of the start",
                done.number % 10 == 0 or done.number == done.of,
            ),
        )
    say(f"3/4  comparing it with {len(RULES)} rules on {len(cut)} windows of {size.window_jobs:,} later jobs")
    with steps(2 * len(RULES) + 1) as step:
        contest = train_batch.compare_agent(
            agent,
            RULES,
            jobs,
            cluster,
            how,
            trace=trace,
            clairvoyant=True,
            progress=lambda who: step(who, False),
        )
    found = results_of(contest, how.objective, seed=seed)
    manifest = {
        "command": command,
        "date": date,
        "seeds": {"workload": seed, "training": seed, "comparison": seed},
    }
    scenario = {"trace": trace, "cluster": to_dict(cluster), "size": asdict(size)}
    train_batch.save_agent(
        folders["agent"],
        agent,
        history,
        scenario={**scenario, "training": asdict(how)},
        results={},
        manifest=manifest,
        force=True,
    )
    save_comparison(
        folders["comparison"],
        [contest],
        scenario={**scenario, "contender": [asdict(contender) for contender in contest.policies]},
        results={"traces": [found]},
        manifest=manifest,
        force=True,
    )
    say("4/4  writing the page")
    made = QuickstartResult(
        out / "report.html", out / "figures", folders["agent"], folders["comparison"], found
    )
    write_report([made.comparison, made.agent], made.report, figures=made.figures, title=TITLE, seed=seed)
    return made
