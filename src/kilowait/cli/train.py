"""``kilowait train``: an agent from a log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from kilowait.cli import options, show

app = typer.Typer(add_completion=False, **show.PLAIN)

RIVALS = ("fcfs", "sjf", "saf", "f1", "wfp3")

_EPILOG = """\b
Examples:
  kilowait train lublin:20000:128:0.95:7 --seed 42 --out runs/first
  kilowait train KTH-SP2-1996-2.1-cln.swf.gz --window-jobs 512 --out runs/kth
  kilowait train lublin:20000:128:0.95:7 --algo ppo --steps 200000 --out runs/ppo
  kilowait train lublin:20000:128:0.95:7 --algo ppo --steps 400000 --out runs/ppo --resume
  kilowait train lublin:20000:128:0.95:7 --settings runs/tuned/best.toml --out runs/tuned-ppo
  kilowait compare KTH-SP2-1996-2.1-cln.swf.gz --policies saf,agent:runs/kth/agent.json"""


@app.command(epilog=_EPILOG)
def train(
    context: typer.Context,
    trace: options.OptionalTrace = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="DIR",
            help="Folder for the agent and results.json; else runs/ALGO-LOG-seedN.",
        ),
    ] = None,
    algo: Annotated[
        str,
        typer.Option(
            metavar="A",
            help="The learner: es (an evolution strategy on a score in the clock), or, for networks, ppo, a2c, d3qn, "
            "sac.",
        ),
    ] = "es",
    net: Annotated[str, typer.Option(metavar="N", help="The network: kernel, attention or gat.")] = "kernel",
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
    steps: Annotated[
        int, typer.Option(metavar="N", min=1, help="Networks: decisions to learn from.")
    ] = 1_000_000,
    envs: Annotated[int, typer.Option(metavar="N", min=1, help="Networks: environments side by side.")] = 32,
    episode_jobs: Annotated[
        int, typer.Option(metavar="N", min=1, help="Networks: jobs in an episode.")
    ] = 256,
    slots: Annotated[
        int, typer.Option(metavar="N", min=1, help="Networks: waiting jobs shown at once.")
    ] = 64,
    reward: Annotated[
        str | None,
        typer.Option(
            metavar="T=W,...",
            help="Networks: weights of what is to be small, say slowdown=1,sla=10; on GPU clusters jct=1.",
        ),
    ] = None,
    limit: Annotated[
        str | None,
        typer.Option(metavar="T=X", help="PPO: a term that may not be above X, say sla=0.05."),
    ] = None,
    sla: Annotated[
        str, typer.Option(metavar="T", help="Networks: a job that waits longer than this counts for sla.")
    ] = "4h",
    max_wait: Annotated[
        str | None,
        typer.Option(metavar="T", help="Networks: a job that has waited longer, say 12h or 3d, goes first."),
    ] = None,
    ease: Annotated[
        float,
        typer.Option(
            metavar="F",
            help="Networks: arrivals come F times as fast at first, as in the log from half way on.",
        ),
    ] = 1.0,
    device: Annotated[str, typer.Option(metavar="D", help="Networks: cpu or cuda.")] = "cpu",
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Networks: go on where a training of this folder was interrupted."),
    ] = False,
    settings: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Networks: settings and sizes from a TOML file, as kilowait tune writes it."
        ),
    ] = None,
    wandb: Annotated[
        str | None, typer.Option(metavar="PROJECT", help="Networks: also to Weights & Biases, if installed.")
    ] = None,
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
    own = {}
    if settings is not None:
        from kilowait.experiments.settings_file import read_settings

        found_settings = read_settings(settings, **_said(context, "algo", "net"))
        algo, net, own = found_settings.algo, found_settings.net, {"settings": found_settings.settings}
    trace = made_for(cluster) if trace is None else trace
    if out is None:
        out = Path("runs", f"{algo}-{Path(trace).name.split('.')[0].replace(':', '-')}-seed{seed}")
    if algo != "es":
        from kilowait.cli.learning import train_network

        train_network(
            context,
            trace,
            out,
            {
                "algo": algo,
                "net": net,
                "seed": seed,
                "steps": steps,
                "envs": envs,
                "episode_jobs": episode_jobs,
                "slots": slots,
                "windows": windows,
                "window_jobs": window_jobs,
                "ease": ease,
                "device": device,
                **own,
            },
            backfill=backfill,
            reward=reward,
            limit=limit,
            sla=sla,
            max_wait=max_wait,
            resume=resume,
            wandb=wandb,
            json=json,
            force=force,
        )
        return
    from kilowait.cli.compared import show_contests
    from kilowait.cluster.file import described
    from kilowait.evaluation.folders import check_free
    from kilowait.experiments import training
    from kilowait.experiments.inputs import parse_backfill
    from kilowait.experiments.results import results_of
    from kilowait.experiments.scenario import prepared

    how = training.Training(
        algo=algo,
        seed=seed,
        objective=objective,
        backfill=parse_backfill(backfill),
        generations=generations,
        population=population,
        windows=windows,
        window_jobs=window_jobs,
    )
    check_free(out, force=force)
    scenario = options.scenario_asked(context, trace, backfill=how.backfill)
    with show.busy(f"reading {trace} ..."):
        workload, machine, notes = prepared(scenario)
    for text in notes:
        show.note(text)
    training.test_windows(
        workload.jobs, window_jobs, seed=seed
    )  # a log too short is told before the training
    with show.steps(generations) as step:
        agent, history = training.train(
            workload.jobs,
            machine,
            how,
            trace=trace,
            progress=lambda done: step(f"best so far {done.best:.3f} of SAF", done.number % 10 == 0),
        )
    with show.busy("trying it on later jobs ..."):
        contest = training.judged(agent, RIVALS, workload.jobs, machine, how, trace=trace, clairvoyant=True)
        found = results_of(contest, objective, seed=seed)
    manifest = workload.provenance(trace, show.command(context), show.today())
    training.save_agent(
        out,
        agent,
        history,
        scenario={**scenario.to_dict(), "training": vars(how), "cluster": described(machine)},
        results={"judged": found},
        manifest={**manifest, "seeds": {**manifest["seeds"], "training": seed}},
        force=force,
    )
    for text in found["notes"]:
        show.note(text)
    if json:
        show.json_document({"agent": agent.provenance, "judged": found, "out": out})
        return
    show_contests([found], [workload])
    print(f"\nwritten to {out}; use it as: --policies saf,agent:{out / 'agent.json'}")


def made_for(cluster: str) -> str:
    """The workload to learn from where none is named: one made for the GPU cluster at load 0.9.

    >>> made_for("gpu-mixed")
    'gpu:4000:gpu-mixed:0.9:0'
    """
    from kilowait.errors import InputError
    from kilowait.experiments.inputs import is_placed

    if cluster == "auto" or not is_placed(cluster, ""):
        raise InputError(
            "name a job log to learn from; only GPU clusters (--cluster gpu-mixed) bring one of their own"
        )
    return f"gpu:4000:{cluster}:0.9:0"


def _said(context: typer.Context, *names: str) -> dict[str, Any]:
    """Those of these options that were written on the command line, with what was written."""
    sources = {name: context.get_parameter_source(name) for name in names}
    return {
        name: context.params[name]
        for name, source in sources.items()
        if source is not None and source.name != "DEFAULT"
    }
