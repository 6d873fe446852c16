"""``kilowait train``: an agent from a log."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from kilowait.cli import options, show
from kilowait.cli.quickstart import steps

app = typer.Typer(add_completion=False, **show.PLAIN)

ALGORITHMS = {"es": "ten weights, found by an evolution strategy (CMA-ES)"}
FEW = 20
"""Fewer windows than this make bootstrap intervals too narrow."""
RIVALS = ("fcfs", "sjf", "saf", "f1", "wfp3")

_EPILOG = """\b
Examples:
  kilowait train lublin:20000:128:0.95:7 --seed 42 --out runs/first
  kilowait train KTH-SP2-1996-2.1-cln.swf.gz --window-jobs 512 --out runs/kth
  kilowait compare KTH-SP2-1996-2.1-cln.swf.gz --policies saf,agent:runs/kth/agent.json"""


@app.command(epilog=_EPILOG)
def train(
    trace: options.Trace,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Folder for agent.json and results.json.")
    ],
    algo: Annotated[str, typer.Option(metavar="A", help="The learner; there is es.")] = "es",
    cluster: options.Cluster = "auto",
    seed: Annotated[int, typer.Option(metavar="N", help="Same seed, same agent.")] = 0,
    objective: Annotated[
        str, typer.Option(metavar="O", help="What is to be small: mean_bsld or mean_wait_s.")
    ] = "mean_bsld",
    backfill: Annotated[
        str, typer.Option("--backfill", "-b", metavar="B", help="As in kilowait simulate.")
    ] = "easy",
    generations: Annotated[int, typer.Option(metavar="N", min=1, help="Rounds of the search.")] = 80,
    population: Annotated[int, typer.Option(metavar="N", min=4, help="Candidates a round.")] = 16,
    windows: Annotated[
        int, typer.Option(metavar="N", min=1, help="Windows each candidate is tried on.")
    ] = 16,
    window_jobs: Annotated[int, typer.Option(metavar="N", min=1, help="Jobs in a window.")] = 1024,
    load: options.Load = None,
    jobs: options.Rows = None,
    columns: options.Columns = None,
    format: options.Format = None,
    strict: options.Strict = False,
    json: options.Json = False,
    force: options.Force = False,
) -> None:
    """Train an agent on the first 80 % of a log and try it on the rest, against rules.

    It sees the first 60 % in training; the next 20 % choose among what was found; the last 20 % judge it.
    """
    from kilowait import agents
    from kilowait.agents.training import OBJECTIVES
    from kilowait.errors import UnknownNameError
    from kilowait.experiments.inputs import parse_backfill
    from kilowait.experiments.runfolder import check_free, plain_json, save_folder
    from kilowait.experiments.scenario import Scenario, described, prepared
    from kilowait.experiments.toml import to_toml

    if algo not in ALGORITHMS:
        raise UnknownNameError("algorithm", algo, ALGORITHMS)
    if objective not in OBJECTIVES:
        raise UnknownNameError("objective", objective, OBJECTIVES)
    check_free(out, force=force)
    depth = parse_backfill(backfill)
    scenario = Scenario(
        trace=trace,
        cluster=cluster,
        backfill=depth,
        load=load,
        jobs=jobs,
        format=format,
        columns=columns,
        strict=strict,
    )
    with show.busy(f"reading {trace} ..."):
        workload, machine, notes = prepared(scenario)
    for text in notes:
        show.note(text)
    with steps(generations) as step:
        agent, history = agents.train(
            workload.jobs,
            machine,
            seed=seed,
            generations=generations,
            population=population,
            windows=windows,
            window_jobs=window_jobs,
            backfill=depth,
            objective=objective,
            trace=trace,
            threads=min(2, os.cpu_count() or 1),
            progress=lambda done: step(f"best so far {done.best:.3f} of SAF", done.number % 10 == 0),
        )
    later = agents.split(workload.jobs).test
    tests = agents.spread_windows(later, max(1, len(later) // window_jobs), window_jobs)
    verdicts = agents.judge(
        agent, RIVALS, tests, machine, seed=seed, backfill=depth, objective=OBJECTIVES[objective]
    )
    asked = {**scenario.to_dict(), "policy": algo, "cluster": described(machine)}
    results = {
        "objective": objective,
        "agent_against_rules": [verdict.to_dict() for verdict in verdicts],
        "training": [vars(done) for done in history],
    }

    def fill(folder: Path) -> None:
        agent.save(folder / "agent.json")
        (folder / "scenario.toml").write_text(to_toml(asked), encoding="utf-8")
        (folder / "results.json").write_text(plain_json(results) + "\n", encoding="utf-8")

    manifest = {
        "command": ["kilowait", *sys.argv[1:]],
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seeds": {"workload": workload.jobs.meta.get("seed"), "training": seed},
        "inputs": {trace: workload.sha256},
    }
    save_folder(out, fill, kind="agent", manifest=manifest, force=force)
    if len(tests) < FEW:
        show.note(
            f"{show.count(len(tests), 'window')} of later jobs are few: intervals from so few are too narrow"
        )
    if json:
        show.json_document({"agent": agent.provenance, **results, "out": out})
        return
    words = {"wins": "better", "loses": "worse", "undecided": "undecided"}
    show.title(f"{objective} on {show.count(len(tests), 'window')} of {window_jobs:,} later jobs")
    show.table(
        ["against", "rule", "agent", "agent / rule", "95 % interval", "the agent is"],
        [
            [
                verdict.rule,
                show.number(verdict.rule_mean),
                show.number(verdict.agent_mean),
                f"{verdict.ratio:.3f}",
                f"{verdict.ratio_low:.3f} - {verdict.ratio_high:.3f}",
                words[verdict.words],
            ]
            for verdict in verdicts
        ],
    )
    print(f"\nwritten to {out}; use it as: --policies saf,agent:{out / 'agent.json'}")
