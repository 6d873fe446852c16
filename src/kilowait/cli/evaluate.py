"""``kilowait evaluate``: test a trained agent against scheduling policies on a log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from kilowait.cli import console, options
from kilowait.cli import option_groups as groups

app = typer.Typer(add_completion=False, **console.PLAIN)

_EPILOG = """\b
Examples:
  kilowait evaluate runs/first lublin:20000:128:0.95:8
  kilowait evaluate runs/kth/agent.json KTH-SP2-1996-2.1-cln.swf.gz --windows 60 --policies saf,f2,f4
  kilowait evaluate runs/green lublin:20000:128:0.6:8 --power taurus --windows 12 --window 512"""


@app.command(epilog=_EPILOG)
@groups.with_groups
def evaluate(
    context: typer.Context,
    *,
    agent: Annotated[
        Path,
        typer.Argument(help="Agent written by kilowait train: its folder, agent.json or agent.pt.", show_default=False),
    ],
    trace: options.Trace,
    preference: Annotated[
        str,
        typer.Option(
            "--preference",
            metavar="T=W+...",
            help="Weights of the objectives, for an agent that was trained with several: slowdown=0.3+energy=0.7.",
            show_default=False,
        ),
    ] = "",
    policies: Annotated[
        str,
        typer.Option(
            "--policies",
            "-p",
            metavar="P,...",
            help="Comma-separated policies to compare with, as in kilowait compare.",
        ),
    ] = "fcfs,sjf,saf,f1,f2,f3,f4,wfp3,unicef",
    cluster: options.Cluster = "auto",
    backfill: options.BackfillDepth = "easy",
    test_fraction: options.TestFraction = 0.2,
    windows: Annotated[
        int, typer.Option("--windows", "-w", metavar="N", min=1, help="Number of windows sampled from the test jobs.")
    ] = 60,
    window: options.Window = 1024,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Random seed of the windows.")] = 0,
    power: options.Power = None,
    power_controls: Annotated[
        str | None,
        typer.Option(
            "--power-controls",
            metavar="CONTROLS",
            help="With --power: power controls that the agent may use; by default those it was trained with.",
            show_default=False,
        ),
    ] = None,
    signals: groups.AgentSignalOptions,
    load: options.Load = None,
    jobs: options.Jobs = None,
    log_format: groups.LogFormatOptions,
    runtime_predictor: options.RuntimePredictor = None,
    power_predictor: options.PowerPredictor = None,
    json: options.Json = False,
) -> None:
    """Test an agent on the last jobs of a log against policies on the same windows, with significance tests.

    Test jobs must be later than the training jobs: on the log that the agent was trained on, choose a --test-fraction
    of at most 0.2.
    """
    from kilowait.agents import load_agent
    from kilowait.cli.output.compare import show_comparisons
    from kilowait.evaluation.comparison import cut_windows
    from kilowait.experiments.compare import compare
    from kilowait.experiments.comparison_results import summarize_comparison
    from kilowait.experiments.policy_names import with_preference
    from kilowait.experiments.scenario import prepare_scenario
    from kilowait.experiments.scenario_inputs import parse_backfill
    from kilowait.experiments.train_power import PowerAgent, bind_agent_power

    policy: Any = with_preference(load_agent(agent), preference)
    provenance = dict(policy.provenance)
    controls = "none" if power_controls is None else power_controls
    if isinstance(policy, PowerAgent):
        controls = policy.power_controls if power_controls is None else power_controls
        if power is None:
            bind_agent_power(policy, None, controls)  # raises an error that names the missing settings
    scenario = groups.scenario_from_options(context, trace, backfill=parse_backfill(backfill), power_controls=controls)
    with console.busy(f"reading {trace} ..."):
        workload, machine, notes = prepare_scenario(scenario)
    count = len(workload.jobs)
    test_windows = cut_windows(
        workload.jobs, windows, window_jobs=window, seed=seed, within=(int(count * (1 - test_fraction)), count)
    )
    for text in (*notes, *workload.evaluated_from(int(test_windows.first.min())).leakage_notes):
        console.note(text)
    if getattr(policy, "skips", False):
        from kilowait.cli.output.trained_agent import show_gpu_evaluation
        from kilowait.experiments.evaluate_gpu import evaluate_gpu_agent

        with console.busy("testing the agent ..."):
            result = evaluate_gpu_agent(policy, [one.jobs for one in test_windows], machine, seed=seed)
        if json:
            console.json_document({"agent": provenance, "judged": result})
            return
        show_gpu_evaluation(result)
        return
    if isinstance(policy, PowerAgent) and scenario.power is not None:
        from kilowait.cli.output.trained_agent import show_energy_evaluation
        from kilowait.experiments.train_power import PowerTraining
        from kilowait.experiments.trainers import evaluate_with_power

        power_training = PowerTraining.of(scenario.power, controls, workload.jobs, machine)
        windows_jobs = [one.jobs for one in test_windows]
        with console.busy("testing the agent ..."):
            result = evaluate_with_power(
                policy, windows_jobs, machine, power_training, parse_backfill(backfill), seed=seed
            )
        if json:
            console.json_document({"agent": provenance, "judged": result})
            return
        show_energy_evaluation(result)
        return
    policies_by_name: dict[str, Any] = {**{name.strip(): name.strip() for name in policies.split(",")}, "agent": policy}
    with console.busy("testing the agent ..."):
        comparison = compare(test_windows, machine, policies_by_name, backfill=scenario.backfill, trace=trace)
        results = summarize_comparison(comparison, "mean_bsld", seed=seed)
    for text in results["notes"]:
        console.note(text)
    if json:
        console.json_document({"agent": provenance, "judged": results})
        return
    show_comparisons([results], [workload])
