"""``kilowait train --algo cma-es`` on a batch cluster: train a linear priority score, test it, print the results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from kilowait.cli import console, options, train_synthetic
from kilowait.cli.train_resume import resumable, state_folder

__all__ = ["BASELINES", "TRAIN_LONGER_HINT", "train_batch_agent"]

BASELINES = ("fcfs", "sjf", "saf", "f1", "wfp3")
"""Policies that a trained agent is compared with."""
TRAIN_LONGER_HINT = "to train longer, repeat the command with more --generations and --resume"


def train_batch_agent(
    context: typer.Context,
    trace: str,
    out: Path,
    settings: Mapping[str, Any],
    *,
    backfill: str,
    resume: bool,
    json: bool,
    force: bool,
) -> None:
    """Train on the first 60 % of the log, validate on the next 20 %, test on the rest; write everything to a folder."""
    from kilowait.cli.output.compare import show_comparisons
    from kilowait.cluster.toml import to_dict
    from kilowait.experiments import train_batch
    from kilowait.experiments.comparison_results import summarize_comparison
    from kilowait.experiments.scenario import prepare_scenario
    from kilowait.experiments.scenario_inputs import parse_backfill

    training = train_batch.BatchTraining(**settings, backfill=parse_backfill(backfill))
    state = state_folder(context, out, resume=resume, force=force)
    scenario = options.scenario_from_options(context, trace, backfill=training.backfill)
    with console.busy(f"reading {trace} ..."):
        workload, machine, notes = prepare_scenario(scenario)
        workload = train_batch.with_test_predictions(workload)
    for note in (*notes, *workload.leakage_notes):
        console.note(note)
    train_batch.windows_of_test_split(
        workload.jobs, training.window_jobs, seed=training.seed
    )  # raises if the log is too short
    generated = train_synthetic.generated_jobs(context, scenario, workload, machine, training.seed)
    with console.steps(training.generations) as step, resumable(state, resume=resume):
        agent, history = train_batch.train_linear_agent(
            workload.jobs,
            machine,
            training,
            trace=trace,
            progress=lambda done: step(
                f"candidates at {done.training:.3f} of the initial objective", done.number % 10 == 0, done.number
            ),
            folder=state,
            resume=resume,
            mixture=None if generated is None else generated.mixture,
        )
    with console.busy("testing the agent on later jobs ..."):
        comparison = train_batch.compare_agent(
            agent, BASELINES, workload.jobs, machine, training, trace=trace, clairvoyant=True
        )
        evaluation = summarize_comparison(comparison, training.objective, seed=training.seed)
    manifest = workload.provenance(trace, console.command(context), console.today()) | train_synthetic.synthetic_record(
        generated
    )
    train_batch.save_agent(
        out,
        agent,
        history,
        scenario={**scenario.to_dict(), "training": vars(training), "cluster": to_dict(machine)},
        results={"judged": evaluation},
        manifest={**manifest, "seeds": {**manifest["seeds"], "training": training.seed}},
        force=force or resume,
    )
    for note in evaluation["notes"]:
        console.note(note)
    if json:
        console.json_document({"agent": agent.provenance, "judged": evaluation, "out": out})
        return
    show_comparisons([evaluation], [workload])
    print(f"\n{search_outcome(agent)}")
    print(f"written to {out}; use it with: kilowait compare --policies saf,agent:{out / 'agent.json'}")
    print(TRAIN_LONGER_HINT)


def search_outcome(agent: Any) -> str:
    """How the search ended, in one sentence.

    >>> from kilowait.agents import LinearAgent
    >>> search_outcome(LinearAgent([1.0] * 12, provenance={"start": "default", "accepted_step": 0.5}))
    "the search started at 'default'; the agent is half the way from there to the best candidate"
    """
    if agent.fallback_policy is not None:
        return (
            f"on the training jobs {agent.fallback_policy} was better than any candidate of the search: "
            "the agent is that policy"
        )
    start, step = agent.provenance["start"], agent.provenance["accepted_step"]
    if step == 0.0:
        return f"the search found nothing clearly better than its start, {start!r}: the agent is that"
    share = "half" if step == 0.5 else "all"
    return f"the search started at {start!r}; the agent is {share} the way from there to the best candidate"
