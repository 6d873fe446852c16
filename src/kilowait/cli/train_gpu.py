"""``kilowait train --algo cma-es`` on a GPU cluster: train a linear priority score, test it, print the results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from kilowait.cli import console, options
from kilowait.cli.train_batch import TRAIN_LONGER_HINT
from kilowait.cli.train_resume import resumable, state_folder

__all__ = ["train_gpu_agent"]


def train_gpu_agent(
    context: typer.Context, trace: str, out: Path, settings: Mapping[str, Any], *, resume: bool, json: bool, force: bool
) -> None:
    """Train on the first 60 % of the log, validate on the next 20 %, test on the rest; write everything to a folder."""
    from kilowait.cli.train_rl import show_gpu_evaluation
    from kilowait.cluster.toml import to_dict
    from kilowait.evaluation.comparison import split
    from kilowait.experiments.evaluate_gpu import evaluate_gpu_agent
    from kilowait.experiments.linear_agent_folder import save_weights
    from kilowait.experiments.scenario import prepare_scenario
    from kilowait.experiments.train_batch import with_test_predictions
    from kilowait.experiments.train_gpu import MEANINGS, GpuTraining, start_description, train_gpu_agent

    training = GpuTraining(**settings)
    state = state_folder(context, out, resume=resume, force=force)
    scenario = options.scenario_from_options(context, trace, backfill="skip")
    with console.busy(f"reading {trace} ..."):
        workload, machine, notes = prepare_scenario(scenario)
        workload = with_test_predictions(workload)
    for note in (*notes, *workload.leakage_notes):
        console.note(note)
    console.note("every policy is run with every placement first; the search starts from the best")
    with console.steps(training.generations) as step, resumable(state, resume=resume):
        agent, history = train_gpu_agent(
            workload.jobs,
            machine,
            training,
            trace=trace,
            progress=lambda done: step(
                f"best so far {done.best:.3f} of the best policy", done.number % 10 == 0, done.number
            ),
            folder=state,
            resume=resume,
        )
    later = split(workload.jobs).test
    count = len(later) // training.window_jobs
    windows = [later[i * training.window_jobs : (i + 1) * training.window_jobs] for i in range(count)]
    with console.busy("testing the agent on later jobs ..."):
        evaluation = evaluate_gpu_agent(agent, windows, machine, seed=training.seed)
    manifest = workload.provenance(trace, console.command(context), console.today())
    save_weights(
        out,
        agent,
        history,
        MEANINGS,
        scenario={**scenario.to_dict(), "training": {"algo": "cma-es", **vars(training)}, "cluster": to_dict(machine)},
        results={"judged": evaluation},
        manifest={**manifest, "seeds": {**manifest["seeds"], "training": training.seed}},
        force=force or resume,
    )
    if json:
        console.json_document({"agent": agent.provenance, "judged": evaluation, "out": out})
        return
    print(f"the best policy on the training jobs is {start_description(agent)}")
    if agent.provenance["policy_kept"]:
        print("no candidate of the search is significantly better on the validation jobs: the agent is that policy")
    show_gpu_evaluation(evaluation)
    print(f"\nwritten to {out}; use it with: kilowait compare --policies srtf,agent:{out / 'agent.json'}")
    print(TRAIN_LONGER_HINT)
