"""``kilowait evaluate``: a trained agent on a log, against rules."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from kilowait.cli import console, options

app = typer.Typer(add_completion=False, **console.PLAIN)

_EPILOG = """\b
Examples:
  kilowait evaluate runs/first lublin:20000:128:0.95:8
  kilowait evaluate runs/kth/agent.json KTH-SP2-1996-2.1-cln.swf.gz --windows 60 --rules saf,f2,f4
  kilowait evaluate runs/green lublin:20000:128:0.6:8 --power taurus --windows 12 --window-jobs 512"""


@app.command(epilog=_EPILOG)
def evaluate(
    context: typer.Context,
    agent: Annotated[
        Path,
        typer.Argument(
            help="What kilowait train wrote: its folder, agent.json or agent.pt.", show_default=False
        ),
    ],
    trace: options.Trace,
    prefer: Annotated[
        str,
        typer.Option(
            metavar="T=W+...",
            help="What an agent that weighs terms as it is told is to prefer, say slowdown=0.3+energy=0.7.",
            show_default=False,
        ),
    ] = "",
    rules: Annotated[
        str, typer.Option(metavar="R,...", help="Rules to hold it against.")
    ] = "fcfs,sjf,saf,f1,f2,f3,f4,wfp3,unicef",
    cluster: options.Cluster = "auto",
    backfill: Annotated[
        str, typer.Option("--backfill", "-b", metavar="B", help="As in kilowait simulate.")
    ] = "easy",
    part: Annotated[
        float,
        typer.Option(
            metavar="P",
            min=0.01,
            max=1.0,
            help="The last part of the log, of which it is tried; 0.3: 30 %.",
        ),
    ] = 0.3,
    windows: Annotated[int, typer.Option(metavar="N", min=1, help="Windows, drawn within that part.")] = 60,
    window_jobs: Annotated[int, typer.Option(metavar="N", min=1, help="Jobs in a window.")] = 1024,
    seed: Annotated[int, typer.Option(metavar="N", help="Of the windows.")] = 0,
    power: options.Power = None,
    levers: Annotated[
        str | None,
        typer.Option(
            metavar="L",
            help="With --power: the levers of an agent that pulls some; else those it was trained with.",
            show_default=False,
        ),
    ] = None,
    carbon: options.Carbon = None,
    price: options.Price = None,
    scope: options.Scope = "life-cycle",
    cooling: options.Cooling = None,
    profile: options.Profile = None,
    forecast: options.Forecast = "perfect",
    start: options.Start = None,
    wrap: options.Wrap = False,
    load: options.Load = None,
    jobs: options.Rows = None,
    columns: options.Columns = None,
    format: options.Format = None,
    strict: options.Strict = False,
    predict: options.Predict = None,
    predict_power: options.PredictPower = None,
    json: options.Json = False,
) -> None:
    """Try an agent on the last part of a log, against rules on the same windows, and say whether the gain is real.

    An agent must be judged on jobs later than those it was trained on; on the log it was trained on, take a part that
    it has not seen.
    """
    from kilowait.agents import load_agent
    from kilowait.cli.output.compare import show_contests
    from kilowait.evaluation.comparison import cut_windows
    from kilowait.experiments.compare import compare
    from kilowait.experiments.comparison_results import results_of
    from kilowait.experiments.inputs import parse_backfill
    from kilowait.experiments.scenario import prepare_scenario, with_preference
    from kilowait.experiments.train_power import PowerAgent, bind_agent_power

    player: Any = with_preference(load_agent(agent), prefer)
    provenance = dict(player.provenance)
    pulled = "none" if levers is None else levers
    if isinstance(player, PowerAgent):
        pulled = player.levers if levers is None else levers
        if power is None:
            bind_agent_power(player, None, pulled)  # says what it needs
    scenario = options.scenario_from_options(context, trace, backfill=parse_backfill(backfill), levers=pulled)
    with console.busy(f"reading {trace} ..."):
        workload, machine, notes = prepare_scenario(scenario)
    count = len(workload.jobs)
    drawn = cut_windows(
        workload.jobs, windows, window_jobs=window_jobs, seed=seed, within=(int(count * (1 - part)), count)
    )
    for text in (*notes, *workload.judged_from(int(drawn.first.min())).leakage_notes):
        console.note(text)
    if getattr(player, "skips", False):
        from kilowait.cli.train_rl import show_on_gpus
        from kilowait.experiments.evaluate_gpu import judged_on_gpus

        with console.busy("trying it ..."):
            told = judged_on_gpus(player, [window.jobs for window in drawn], machine, seed=seed)
        if json:
            console.json_document({"agent": provenance, "judged": told})
            return
        show_on_gpus(told)
        return
    if isinstance(player, PowerAgent) and scenario.power is not None:
        from kilowait.cli.train_power import judged_on_windows, show_on_energy
        from kilowait.experiments.power import meter_for

        meter = meter_for(scenario.power, workload.jobs, machine)
        told = judged_on_windows(
            player,
            [window.jobs for window in drawn],
            machine,
            meter,
            pulled,
            parse_backfill(backfill),
            seed=seed,
        )
        if json:
            console.json_document({"agent": provenance, "judged": told})
            return
        show_on_energy(told)
        return
    named: dict[str, Any] = {**{rule.strip(): rule.strip() for rule in rules.split(",")}, "agent": player}
    with console.busy("trying it ..."):
        contest = compare(drawn, machine, named, backfill=scenario.backfill, trace=trace)
        found = results_of(contest, "mean_bsld", seed=seed)
    for text in found["notes"]:
        console.note(text)
    if json:
        console.json_document({"agent": provenance, "judged": found})
        return
    show_contests([found], [workload])
