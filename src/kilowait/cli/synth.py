"""``kilowait synth``: fit generators of synthetic workloads to logs, sample jobs, score their quality."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from kilowait.cli import console, options, synth_score
from kilowait.cli import option_groups as groups
from kilowait.cli.train_resume import resumable, state_folder

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Synthetic workloads: fit a generator to a log, sample jobs, score them, list generators.",
    **console.PLAIN,
)

_FIT = """\b
Examples:
  kilowait synth fit log.swf.gz --model transformer --out models/ours
  kilowait synth fit lublin:5000:128:0.9:7 --model copula --out models/made
  kilowait synth fit log.swf.gz --jobs 20000 --set passes=10,frequent_jobs=3 --out models/first
  kilowait synth fit log.swf.gz --device cuda --resume --out models/ours
  kilowait synth fit log.swf.gz --set dp_epsilon=8 --out models/private
  kilowait synth fit log.swf.gz --model sdv:TVAE --set python=~/sdv/bin/python,epochs=50 --out models/theirs"""
_SAMPLE = """\b
Examples:
  kilowait synth sample models/ours --jobs 50000 --seed 1 --out made.swf.gz
  kilowait synth sample models/ours --jobs 10000 --load 0.9 --where nodes=1:16,hour=8:18 --out busy.parquet
  kilowait synth sample models/ours --days 365 --nodes 512 --out larger.parquet
  kilowait synth sample models/ours --days 90 --scale-jobs queue=long*3 --job-mix nodes=1:4*0.5,64:128*2 \\
    --out scaled.parquet
  kilowait synth sample models/ours --jobs 20000 --job-mix nodes=1=60% --out serial.parquet
  kilowait synth sample models/theirs --jobs 10000 --allow-pickle-with ~/sdv/bin/python --out made.swf.gz"""
_LIST = """\b
Example:
  kilowait synth list"""


@contextmanager
def _progress() -> Iterator[Callable[[str, float], None]]:
    """A progress bar in per cent, on a terminal."""
    with console.progress(100) as bar:

        def progress(what: str, share: float) -> None:
            if bar is not None:
                bar.update(bar.task_ids[0], description=what, completed=int(100 * share))

        yield progress


@app.command(epilog=_FIT)
@groups.with_groups
def fit(
    context: typer.Context,
    *,
    trace: options.Trace,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder of the generator.")],
    model: Annotated[
        str, typer.Option("--model", "-m", metavar="MODEL", help="Generator; see kilowait synth list.")
    ] = "transformer",
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, help="Random seed; the same seed gives the same generator.")
    ] = 0,
    settings: Annotated[
        str | None,
        typer.Option("--set", metavar="S=V,...", help="Hyperparameters of the generator; see kilowait synth list."),
    ] = None,
    keep_names: Annotated[
        bool,
        typer.Option("--keep-names", help="Keep IDs and names of users and accounts, in the folder and in samples."),
    ] = False,
    device: Annotated[
        str,
        typer.Option(
            "--device", metavar="DEVICE", help="Device of the training: cpu, cuda, or auto: a GPU if there is one."
        ),
    ] = "auto",
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume an interrupted fit from its last checkpoint.")
    ] = False,
    jobs: options.Jobs = None,
    log_format: groups.LogFormatOptions,
    force: options.Force = False,
) -> None:
    """Fit a generator of synthetic workloads to a log.

    The folder contains numbers only, no code, except for generators of sdv and realtabformer, which store pickles. The
    documentation page on synthetic workloads describes what a folder reveals about the log. Neural generators
    (transformer, ctgan, tvae, copulagan, diffusion) write checkpoints to DIR.training; a fit continued with --resume
    gives the same folder as an uninterrupted one, byte for byte on a CPU.
    """
    from kilowait.experiments.fit_generator import fit_folder
    from kilowait.experiments.generator_sample import parse_settings
    from kilowait.experiments.scenario_inputs import read_workload

    hyperparameters = None if settings is None else parse_settings(settings)
    with console.busy(f"reading {trace} ..."):
        workload = read_workload(trace, **vars(log_format), rows=jobs)
    state = state_folder(context, out, resume=resume, force=force)
    with _progress() as progress, resumable(state, resume=resume):
        manifest = workload.provenance(trace, console.command(context), console.today())
        fitted = fit_folder(
            workload.jobs,
            model,
            out,
            seed=seed,
            names=keep_names,
            settings=hyperparameters,
            manifest=manifest,
            force=force,
            progress=progress,
            device=device,
            state=state,
            resume=resume,
        )
    print(f"{fitted.name} fitted to {console.count(len(workload.jobs), 'job')} of {trace}, written to {out}")
    if fitted.privacy is not None:
        print(
            f"differential privacy: epsilon {fitted.privacy['epsilon']:.2f}, delta {fitted.privacy['delta']:g}, for "
            f"each user; {out / 'card.json'} lists what is treated as public and what is not covered"
        )


@app.command(epilog=_SAMPLE)
def sample(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder written by kilowait synth fit.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="File to write, as in kilowait traces convert.")
    ],
    jobs: Annotated[int | None, typer.Option("--jobs", "-n", metavar="N", min=1, help="Number of jobs.")] = None,
    days: Annotated[
        float | None,
        typer.Option("--days", metavar="DAYS", help="Instead of --jobs: number of days; may be more than the log has."),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, help="Random seed; the same seed gives the same jobs.")
    ] = 0,
    load: Annotated[
        float | None,
        typer.Option(
            "--load",
            metavar="TARGET",
            help="Offered load, up to 1.5: scales the number of jobs per day and keeps the daily pattern.",
        ),
    ] = None,
    job_mix: Annotated[
        str | None,
        typer.Option(
            "--job-mix",
            metavar="C=V*F,...",
            help="Change the job mix: jobs with these values arrive F times as often, or are a given share of all "
            "jobs: nodes=1:4*0.5,64:128*2 or nodes=1=60%; columns as in --where.",
        ),
    ] = None,
    scale_jobs: Annotated[
        str | None,
        typer.Option(
            "--scale-jobs",
            metavar="C=V*F,...",
            help="Queues, users or accounts that submit F times as many jobs: queue=long*3,user=1*2. If names were not "
            "kept, users and accounts are ranks: 1 used most node-seconds.",
        ),
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option(
            "--nodes",
            metavar="N",
            help="Number of nodes of another cluster: job sizes are scaled to it at the same load.",
        ),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(
            "--where",
            metavar="C=V,...",
            help="Only jobs with these values: queue=long, nodes=1:16, hour=8:18, weekday=0/1/2; also gpus, "
            "estimate_s, runtime_s, status.",
        ),
    ] = None,
    cluster: options.Cluster = "auto",
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="FORMAT",
            help="Format: swf, csv, parquet or batsim; by default from the name of the --out file.",
        ),
    ] = None,
    allow_pickle_with: Annotated[
        str | None,
        typer.Option(
            "--allow-pickle-with",
            metavar="PYTHON",
            help="For a generator of sdv or realtabformer that you trust: unpickle it with this Python interpreter. "
            "Unpickling runs code from the folder.",
        ),
    ] = None,
) -> None:
    """Sample jobs from a generator and write them as a job log; the what-if options can be combined.

    Parquet is written in chunks, so that samples may be larger than memory.
    """
    from kilowait.experiments.generator_sample import sample_file
    from kilowait.synth.conditions import parse_conditions
    from kilowait.synth.what_if import WhatIf, parse_changes

    conditions = None if where is None else parse_conditions(where)
    what_if = WhatIf(
        load,
        {} if job_mix is None else parse_changes(job_mix, "job mix"),
        {} if scale_jobs is None else parse_changes(scale_jobs, "group scaling"),
        nodes,
    )
    with _progress() as progress:
        written = sample_file(
            folder,
            out,
            jobs=jobs,
            days=days,
            seed=seed,
            conditions=conditions,
            what_if=what_if,
            cluster=cluster,
            format=to,
            trust=allow_pickle_with,
            progress=progress,
        )
    print(
        f"{console.count(written.jobs, 'job')} over {console.span(written.span_s)}, offered load {written.load:.2f}, "
        f"written to {out}"
    )


app.command(epilog=synth_score.EPILOG)(synth_score.score)


@app.command("list", epilog=_LIST)
def list_(json: options.Json = False) -> None:
    """List the generators and their hyperparameters."""
    from kilowait.synth.registry import EXTERNAL_GENERATORS, GENERATORS, settings_of

    rows = [(name, what, settings_of(name)) for name, (_, what) in (GENERATORS | EXTERNAL_GENERATORS).items()]
    if json:
        console.json_document([{"name": name, "what": what, "settings": known} for name, what, known in rows])
        return
    cells = [
        [name, what, ", ".join(f"{key}={'auto' if value in (None, '') else value}" for key, value in known.items())]
        for name, what, known in rows
    ]
    console.table(["name", "description", "hyperparameters"], cells, left=3)
