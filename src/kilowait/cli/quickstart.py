"""``kilowait quickstart``: rules compared, a small agent trained, and a page with pictures; no data needed."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kilowait.cli import show

if TYPE_CHECKING:
    from kilowait.agents import Generation, LinearAgent, Verdict
    from kilowait.cluster import Cluster
    from kilowait.jobs import JobTable, SegmentLog
    from kilowait.report import Report, Result

app = typer.Typer(add_completion=False, **show.PLAIN)

NODES, LOAD = 256, 0.95
RULES = ("fcfs", "sjf", "saf", "smallest", "f1", "lxf", "wfp3", "unicef")
DRAWN = ("fcfs",)
"""Drawn over time, beside the best rule and the agent."""
KIND = "quickstart"


@dataclass(frozen=True)
class Size:
    """How much is done."""

    jobs: int
    generations: int
    population: int
    windows: int
    window_jobs: int


FULL = Size(jobs=300_000, generations=80, population=16, windows=24, window_jobs=1024)
FAST = Size(jobs=12_000, generations=6, population=8, windows=4, window_jobs=256)


@app.command()
def quickstart(
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Where the page, figures and the agent go.")
    ] = Path("runs/quickstart"),
    seed: Annotated[int, typer.Option(metavar="N", help="Of the workload and of the training.")] = 0,
    fast: Annotated[
        bool,
        typer.Option("--fast", help="Seconds instead of minutes; too little training to expect much of."),
    ] = False,
) -> None:
    """A first simulation, on a workload made on the spot: compare rules, train an agent, write a page with pictures.

    Takes one to three minutes. The agent learns from the first 80 % of the jobs; all numbers printed are of the last
    20 %, which neither it nor anyone has seen. Same seed, same numbers.
    """
    from kilowait.agents import judge, split, spread_windows
    from kilowait.cluster import Cluster
    from kilowait.report import Duel, Report, write_page
    from kilowait.report.figures import need_matplotlib, save
    from kilowait.report.page import drawn
    from kilowait.synth import lublin

    need_matplotlib()
    check_folder(out)
    began = time.perf_counter()
    size = FAST if fast else FULL
    show.say(f"1/4  making {size.jobs:,} jobs for {NODES} nodes at a load of {LOAD} (seed {seed})")
    jobs = lublin(size.jobs, NODES, load=LOAD, seed=seed, estimates="rounded")
    cluster = Cluster.from_nodes(NODES)
    later = split(jobs).test
    show.say(f"2/4  comparing {len(RULES) + 1} rules on the last {len(later):,} jobs")
    results, logs = compared(later, cluster)
    show.say(f"3/4  training an agent of ten weights on the first {size.jobs - len(later):,} jobs")
    agent, history = trained(jobs, cluster, size, seed)
    show.say("4/4  trying it on the last jobs, and writing the page")
    windows = spread_windows(later, len(later) // size.window_jobs, size.window_jobs)
    verdicts = judge(agent, RULES, windows, cluster, seed=seed)
    ours, log = run(later, cluster, agent)
    best = min((r for r in results if r.backfill == "easy"), key=lambda r: r.metrics["mean_bsld"])
    names = dict.fromkeys((*DRAWN, best.policy))
    report = Report(
        title="kilowait quickstart: who goes next?",
        results=[*results, ours],
        jobs=f"{len(later):,} jobs later than any the agent was trained on",
        duels=[Duel(**asdict(verdict)) for verdict in verdicts],
        curve=curve(history),
        logs={**{name: logs[name] for name in names}, "agent": log},
        facts=facts(size, seed, len(windows), fast),
        weights=weights(agent),
    )
    out.mkdir(parents=True, exist_ok=True)
    write_page(report, out / "report.html")
    for name, (figure, _, _) in drawn(report).items():
        save(figure, out / "figures", name)
    agent.save(out / "agent.json")
    (out / "results.json").write_text(results_json(report, verdicts, history, size, seed), encoding="utf-8")
    printed(report)
    print(f"\ndone in {time.perf_counter() - began:.0f} s; the page with pictures: {out / 'report.html'}")
    print(f"try the agent elsewhere: kilowait compare TRACE --policies saf,agent:{out / 'agent.json'}")


def check_folder(out: Path) -> None:
    """Raise unless the files of a quickstart may be written to `out`; those of an earlier one are replaced."""
    from kilowait.errors import InputError

    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; name a folder with --out")
    held = out / "results.json"
    try:
        kind = json.loads(held.read_text(encoding="utf-8")).get("kind") if held.exists() else KIND
    except (OSError, ValueError, AttributeError):
        kind = None
    if kind != KIND:
        raise InputError(
            f"{out} holds the results of something else ({held.name}); name another folder with --out"
        )
    if held.exists():
        show.note(f"{out} holds an earlier quickstart; its files are replaced, others stay")
    above = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
    if not os.access(above, os.W_OK | os.X_OK):
        raise InputError(f"cannot write to {above}; name another folder with --out")


def run(
    jobs: JobTable, cluster: Cluster, policy: str | LinearAgent, backfill: str = "easy"
) -> tuple[Result, SegmentLog]:
    """One policy over all the jobs."""
    from kilowait.evaluation import metrics
    from kilowait.policies import simulate
    from kilowait.report import Result

    named = isinstance(policy, str)
    log = simulate(jobs, cluster, policy if isinstance(policy, str) else policy.rule, backfill)
    return Result(str(log.run["policy"]), backfill, metrics(log), learned=not named), log


def compared(jobs: JobTable, cluster: Cluster) -> tuple[list[Result], dict[str, SegmentLog]]:
    """Every rule over the same jobs, with EASY; and the first without backfilling."""
    pairs = [("fcfs", "none"), *((rule, "easy") for rule in RULES)]
    results, logs = [], {}
    with steps(len(pairs)) as step:
        for rule, backfill in pairs:
            step(f"{rule}, backfill {backfill}", False)
            result, log = run(jobs, cluster, rule, backfill)
            results.append(result)
            logs[result.label] = log
    return results, logs


def trained(jobs: JobTable, cluster: Cluster, size: Size, seed: int) -> tuple[LinearAgent, list[Generation]]:
    """The agent, with progress shown."""
    from kilowait.agents import train

    with steps(size.generations) as step:

        def progress(done: Generation) -> None:
            step(f"best so far {done.best:.3f} of SAF", done.number % 10 == 0 or done.number == done.of)

        return train(
            jobs,
            cluster,
            seed=seed,
            generations=size.generations,
            population=size.population,
            windows=size.windows,
            window_jobs=size.window_jobs,
            trace=f"lublin, {size.jobs} jobs, {NODES} nodes, load {LOAD}, rounded estimates, seed {seed}",
            threads=min(2, os.cpu_count() or 1),
            progress=progress,
        )


@contextmanager
def steps(total: int) -> Iterator[Callable[[str, bool], None]]:
    """Progress: a bar on a terminal; elsewhere a line for the steps that say so."""
    done = 0
    with show.progress(total) as bar:

        def step(text: str, line: bool) -> None:
            nonlocal done
            done += 1
            if bar is not None:
                bar.update(bar.task_ids[0], description=text, completed=done)
            elif line:
                show.say(f"     {done} of {total}: {text}")

        yield step


def curve(history: Sequence[Generation]) -> Any:
    """The history as the report draws it."""
    from kilowait.report import Curve

    return Curve(
        [done.number for done in history],
        [done.training for done in history],
        [done.validation for done in history],
    )


def weights(agent: LinearAgent) -> list[tuple[str, float, str]]:
    """Features, weights and meanings, the weightiest first."""
    from kilowait.agents import FEATURES

    return [(name, weight, FEATURES[name]) for name, weight in agent.explain()]


def facts(size: Size, seed: int, windows: int, fast: bool) -> list[tuple[str, str]]:
    """What was run."""
    import platform
    from importlib.metadata import version

    return [
        ("command", f"kilowait quickstart --seed {seed}{' --fast' if fast else ''}"),
        ("workload", f"Lublin-Feitelson model, {size.jobs:,} jobs, estimates rounded up as users do"),
        ("machine", f"{NODES} nodes, offered load {LOAD}"),
        ("split by time", "60 % training, 20 % validation, 20 % unseen until the end"),
        ("backfilling", "EASY, candidates in the policy's order"),
        (
            "training",
            f"CMA-ES, {size.generations} generations of {size.population} candidates, each on {size.windows} windows "
            f"of {size.window_jobs:,} jobs; objective: mean bounded slowdown",
        ),
        ("judged on", f"{windows} windows of {size.window_jobs:,} unseen jobs, side by side"),
        ("seed", str(seed)),
        (
            "versions",
            ", ".join(f"{name} {version(name)}" for name in ("kilowait", "numpy", "numba"))
            + f", Python {platform.python_version()}",
        ),
    ]


def results_json(
    report: Report, verdicts: Sequence[Verdict], history: Sequence[Generation], size: Size, seed: int
) -> str:
    """All numbers, without times of the clock: same seed, same bytes."""
    from kilowait.experiments.runfolder import plain_json

    data = {
        "kind": KIND,
        "seed": seed,
        "size": asdict(size),
        "results": [asdict(result) for result in report.results],
        "agent_against_rules": [verdict.to_dict() for verdict in verdicts],
        "training": [asdict(done) for done in history],
    }
    return plain_json(data) + "\n"


def printed(report: Report) -> None:
    """The findings and a short table."""
    from kilowait.report.content import number, summary

    print()
    rows = [
        [
            result.label,
            number(result.metrics["mean_bsld"]),
            show.span(result.metrics["mean_wait_s"]),
            show.span(result.metrics["p95_wait_s"]),
            show.percent(result.metrics["utilization"]),
        ]
        for result in report.ranked()
    ]
    show.table(["policy", "mean bounded slowdown", "mean wait", "95 % wait less than", "nodes busy"], rows)
    print()
    for sentence in summary(report):
        print(sentence)
