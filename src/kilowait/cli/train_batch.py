"""The evolution strategy on a log of a batch system, as ``kilowait train`` shows it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from kilowait.cli import console, options, train_synthetic
from kilowait.cli.train_resume import resumable, state_folder

__all__ = ["LONGER", "RIVALS", "train_rule"]

RIVALS = ("fcfs", "sjf", "saf", "f1", "wfp3")
"""Rules that what was learned is judged beside."""
LONGER = "longer: the same command with more --generations and --resume"


def train_rule(
    context: typer.Context,
    trace: str,
    out: Path,
    asked: Mapping[str, Any],
    *,
    backfill: str,
    resume: bool,
    json: bool,
    force: bool,
) -> None:
    """Search on the first 60 % of the log, choose on the next 20 %, judge on the rest; all of it in a folder."""
    from kilowait.cli.output.compare import show_contests
    from kilowait.cluster.toml import to_dict
    from kilowait.experiments import train_batch
    from kilowait.experiments.comparison_results import results_of
    from kilowait.experiments.inputs import parse_backfill
    from kilowait.experiments.scenario import prepare_scenario

    how = train_batch.BatchTraining(**asked, backfill=parse_backfill(backfill))
    state = state_folder(out, resume=resume, force=force)
    scenario = options.scenario_from_options(context, trace, backfill=how.backfill)
    with console.busy(f"reading {trace} ..."):
        workload, machine, notes = prepare_scenario(scenario)
        workload = train_batch.judged_last(workload)
    for text in (*notes, *workload.leakage_notes):
        console.note(text)
    train_batch.test_windows(workload.jobs, how.window_jobs, seed=how.seed)  # a log too short is told before
    drawn = train_synthetic.generated_jobs(context, scenario, workload, machine, how.seed)
    with console.steps(how.generations) as step, resumable(state, resume=resume):
        agent, history = train_batch.train(
            workload.jobs,
            machine,
            how,
            trace=trace,
            progress=lambda done: step(
                f"candidates at {done.training:.3f} of the start", done.number % 10 == 0, done.number
            ),
            folder=state,
            resume=resume,
            mixture=None if drawn is None else drawn.mixture,
        )
    with console.busy("trying it on later jobs ..."):
        contest = train_batch.judged(
            agent, RIVALS, workload.jobs, machine, how, trace=trace, clairvoyant=True
        )
        found = results_of(contest, how.objective, seed=how.seed)
    manifest = workload.provenance(
        trace, console.command(context), console.today()
    ) | train_synthetic.kept_with(drawn)
    train_batch.save_agent(
        out,
        agent,
        history,
        scenario={**scenario.to_dict(), "training": vars(how), "cluster": to_dict(machine)},
        results={"judged": found},
        manifest={**manifest, "seeds": {**manifest["seeds"], "training": how.seed}},
        force=force or resume,
    )
    for text in found["notes"]:
        console.note(text)
    if json:
        console.json_document({"agent": agent.provenance, "judged": found, "out": out})
        return
    show_contests([found], [workload])
    print(f"\n{taken_in_words(agent)}")
    print(f"written to {out}; use it as: --policies saf,agent:{out / 'agent.json'}")
    print(LONGER)


def taken_in_words(agent: Any) -> str:
    """What the search came to.

    >>> from kilowait.agents import LinearAgent
    >>> taken_in_words(LinearAgent([1.0] * 12, provenance={"began_at": "usual", "went": "half the way"}))
    "the search began at 'usual' and what is taken went half the way it found"
    """
    if agent.fallback_rule is not None:
        return (
            f"on the training jobs {agent.fallback_rule} was better than what the search found: "
            "the agent plays that rule"
        )
    began, went = agent.provenance["began_at"], agent.provenance["went"]
    if went.startswith("nowhere"):
        return f"the search found nothing clearly better than where it began, {began!r}: the agent plays that"
    return f"the search began at {began!r} and what is taken went {went} it found"
