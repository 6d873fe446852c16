"""``kilowait pareto``: the Pareto front of a multi-objective agent over its preferences."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kilowait.cli import console, options
from kilowait.cli import option_groups as groups

__all__ = ["app"]

app = typer.Typer(add_completion=False, **console.PLAIN)

_EPILOG = """\b
Examples:
  kilowait train lublin:20000:128:0.95:7 --algo ppo --objectives slowdown,fairness --out runs/both
  kilowait pareto runs/both lublin:20000:128:0.95:7
  kilowait compare lublin:20000:128:0.95:7 --windows 20 --policies \\
    saf,agent:runs/both/agent.pt:prefer=slowdown=1,agent:runs/both/agent.pt:prefer=slowdown=0.5+fairness=0.5"""


@app.command(epilog=_EPILOG)
@groups.with_groups
def pareto(
    context: typer.Context,
    *,
    agent: Annotated[
        Path,
        typer.Argument(
            help="Agent written by kilowait train --objectives: its folder, or agent.pt.", show_default=False
        ),
    ],
    trace: options.Trace,
    cluster: options.Cluster = "auto",
    test_fraction: options.TestFraction = 0.2,
    windows: Annotated[
        int | None,
        typer.Option(
            "--windows",
            "-w",
            metavar="N",
            min=1,
            help="Number of evenly spaced test windows; by default as many as fit without overlap.",
            show_default=False,
        ),
    ] = None,
    window: options.Window = 1024,
    grid_steps: Annotated[
        int | None,
        typer.Option(
            "--grid-steps",
            metavar="N",
            min=1,
            help="Grid of preferences: weights are multiples of 1/N. Default: 10 for two objectives, 4 for three, 2 "
            "for more.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Random seed of the confidence intervals.")] = 0,
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
    json: options.Json = False,
) -> None:
    """Run a multi-objective agent under many preferences on the last jobs of a log and print its objectives.

    Test jobs must be later than the training jobs: kilowait train does not use the last 20 % of a log.
    """
    from kilowait.agents import load_agent
    from kilowait.cli.output.trained_agent import show_front
    from kilowait.experiments.pareto import preference_front
    from kilowait.experiments.scenario import prepare_scenario
    from kilowait.experiments.train_power import PowerAgent, PowerTraining, bind_agent_power

    policy = load_agent(agent)
    controls = "none" if power_controls is None else power_controls
    if isinstance(policy, PowerAgent):
        controls = policy.power_controls if power_controls is None else power_controls
        if power is None:
            bind_agent_power(policy, None, controls)  # raises an error that names the missing settings
    scenario = groups.scenario_from_options(context, trace, power_controls=controls)
    with console.busy(f"reading {trace} ..."):
        workload, machine, notes = prepare_scenario(scenario)
    for text in notes:
        console.note(text)
    later = workload.jobs[int(len(workload.jobs) * (1 - test_fraction)) :]
    power_training = None
    if scenario.power is not None:
        power_training = PowerTraining.of(scenario.power, controls, workload.jobs, machine)
    with console.busy("testing the agent under every preference ..."):
        front = preference_front(
            policy,
            later,
            machine,
            windows=windows,
            window_jobs=window,
            grid_steps=grid_steps,
            seed=seed,
            power=power_training,
        )
    if json:
        console.json_document({"agent": dict(policy.provenance), "front": front})
        return
    show_front(front)
