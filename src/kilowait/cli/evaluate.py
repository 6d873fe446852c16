"""``kilowait evaluate``, ``pareto`` and ``export``: test a trained agent; the front of its preferences; its network."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from kilowait.cli import console
from kilowait.cli.options import COOLING_WITHOUT_WEATHER, LOG_FORMAT, SIGNALS, Json, verb
from kilowait.experiments.settings import Scenario
from kilowait.experiments.training.settings import EvaluationOptions, FrontOptions
from kilowait.settings import Argument, Option

app = typer.Typer(add_completion=False, **console.PLAIN)

_EVALUATE = """\b
Examples:
  kilowait evaluate runs/first lublin:20000:128:0.95:8
  kilowait evaluate runs/kth/agent.json KTH-SP2-1996-2.1-cln.swf.gz --windows 60 --policies saf,f2,f4
  kilowait evaluate runs/green lublin:20000:128:0.6:8 --power taurus --windows 12 --window 512"""
_PARETO = """\b
Examples:
  kilowait train lublin:20000:128:0.95:7 --algo ppo --objectives slowdown,fairness --out runs/both
  kilowait pareto runs/both lublin:20000:128:0.95:7
  kilowait compare lublin:20000:128:0.95:7 --windows 20 --policies \\
    saf,agent:runs/both/agent.pt:prefer=slowdown=1,agent:runs/both/agent.pt:prefer=slowdown=0.5+fairness=0.5"""
_EXPORT = """\b
Examples:
  kilowait export runs/ppo --out ppo.onnx
  kilowait export runs/ppo/agent.pt --to torchscript --out ppo.ts"""


@verb(
    app,
    "agent trace preference policies cluster backfill test_fraction windows window seed power power_controls "
    f"{SIGNALS} on_oversized load jobs {LOG_FORMAT} runtime_predictor power_predictor json",
    epilog=_EVALUATE,
    cooling=COOLING_WITHOUT_WEATHER,
)
def evaluate(
    agent: Annotated[
        Path, Argument(None, "Agent written by kilowait train: its folder, agent.json or agent.pt.", show_default=False)
    ],
    options: EvaluationOptions,
    scenario: Scenario,
    json: Json = False,
) -> None:
    """Test an agent on the last jobs of a log against policies on the same windows, with significance tests.

    Test jobs must be later than the training jobs: on the log that the agent was trained on, choose a --test-fraction
    of at most 0.2.
    """
    from kilowait.cli.output.compare import show_comparisons
    from kilowait.cli.output.trained_agent import show_energy_evaluation, show_gpu_evaluation
    from kilowait.experiments.policies import parse_names
    from kilowait.experiments.training import evaluate as evaluation

    policy, controls = evaluation.agent_for_test(
        agent,
        preference=options.preference,
        has_power=scenario.power is not None,
        power_controls=options.power_controls,
    )
    scenario = replace(scenario, backfill=options.backfill, power_controls=controls)
    names = parse_names("policies", options.policies)
    task = evaluation.EvaluationTask(
        policy, scenario, names, options.test_fraction, options.windows, options.window, options.seed
    )
    tested = evaluation.run_evaluation(task, console)
    for text in tested.results.get("notes", ()):
        console.note(text)
    if json:
        console.json_document({"agent": dict(policy.provenance), "judged": tested.results})
    elif tested.kind == "comparison":
        show_comparisons([tested.results], [tested.workload])
    else:
        (show_gpu_evaluation if tested.kind == "gpu" else show_energy_evaluation)(tested.results)


@verb(
    app,
    "agent trace cluster test_fraction windows window grid_steps seed power power_controls "
    f"{SIGNALS} on_oversized load jobs {LOG_FORMAT} json",
    epilog=_PARETO,
    cooling=COOLING_WITHOUT_WEATHER,
)
def pareto(
    agent: Annotated[
        Path,
        Argument(None, "Agent written by kilowait train --objectives: its folder, or agent.pt.", show_default=False),
    ],
    options: FrontOptions,
    scenario: Scenario,
    json: Json = False,
) -> None:
    """Run a multi-objective agent under many preferences on the last jobs of a log and print its objectives.

    Test jobs must be later than the training jobs: kilowait train does not use the last 20 % of a log.
    """
    from kilowait.cli.output.trained_agent import show_front
    from kilowait.experiments.training import evaluate as evaluation

    policy, controls = evaluation.agent_for_test(
        agent, has_power=scenario.power is not None, power_controls=options.power_controls
    )
    task = evaluation.EvaluationTask(
        policy,
        replace(scenario, power_controls=controls),
        test_fraction=options.test_fraction,
        windows=options.windows,
        window_jobs=options.window,
        seed=options.seed,
    )
    front = evaluation.run_preference_front(task, options.grid_steps, console)
    if json:
        console.json_document({"agent": dict(policy.provenance), "front": front})
        return
    show_front(front)


@verb(app, epilog=_EXPORT)
def export(
    agent: Annotated[
        Path, Argument(None, "Network written by kilowait train: its folder or agent.pt.", show_default=False)
    ],
    to: Annotated[str, Option("FORMAT", "Format: onnx, torchscript, or pt2 (torch.export).")] = "onnx",
    out: Annotated[
        Path | None, Option("FILE", "File to write; by default FOLDER.onnx, .ts or .pt2 next to the folder.", "-o")
    ] = None,
    json: Json = False,
    force: Annotated[bool, Option(None, "Replace the file if it exists.")] = False,
) -> None:
    """Export a trained network so that other programs can run it without kilowait.

    The inputs are the arrays of the observation by name (jobs, mask, summary, and edges for gat), with any batch size;
    the output is one score per action. The agent takes the action with the largest score.
    """
    from kilowait.experiments.training.network import export_agent

    written, inputs = export_agent(agent, to=to, out=out, force=force)
    if json:
        console.json_document({"out": written, "format": to, "inputs": inputs, "outputs": ["scores"]})
        return
    for name, shape in inputs.items():
        print(f"{name:<10}{shape}")
    print(f"{'-> scores':<10}float32 (batch, {inputs['mask'].partition(', ')[2]}")
    print(f"\nwritten to {written}")
