"""``kilowait synth``: learn a workload from a log, draw jobs like its, and say how like they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from kilowait.cli import console, options, synth_score
from kilowait.cli.train_resume import resumable, state_folder

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Workloads learned from a log: fit, sample, score, list.",
    **console.PLAIN,
)

_FIT = """\b
Examples:
  kilowait synth fit log.swf.gz --model transformer --out models/ours
  kilowait synth fit lublin:5000:128:0.9:7 --model copula --out models/made
  kilowait synth fit log.swf.gz --jobs 20000 --set passes=10,menu=3 --out models/first
  kilowait synth fit log.swf.gz --device cuda --resume --out models/ours
  kilowait synth fit log.swf.gz --set dp_epsilon=8 --out models/private
  kilowait synth fit log.swf.gz --model sdv:TVAE --set python=~/sdv/bin/python,epochs=50 --out models/theirs"""
_SAMPLE = """\b
Examples:
  kilowait synth sample models/ours --jobs 50000 --seed 1 --out made.swf.gz
  kilowait synth sample models/ours --jobs 10000 --load 0.9 --where nodes=1:16,hour=8:18 --out busy.parquet
  kilowait synth sample models/ours --days 365 --nodes 512 --out larger.parquet
  kilowait synth sample models/ours --days 90 --grow queue=long*3 --mix nodes=1:4*0.5,64:128*2 --out grown.parquet
  kilowait synth sample models/ours --jobs 20000 --mix nodes=1=60% --out serial.parquet
  kilowait synth sample models/theirs --jobs 10000 --trust ~/sdv/bin/python --out made.swf.gz"""
_LIST = """\b
Example:
  kilowait synth list"""


@contextmanager
def _progress() -> Iterator[Callable[[str, float], None]]:
    """A bar in per cent, on a terminal."""
    with console.progress(100) as bar:

        def told(what: str, share: float) -> None:
            if bar is not None:
                bar.update(bar.task_ids[0], description=what, completed=int(100 * share))

        yield told


@app.command(epilog=_FIT)
def fit(
    context: typer.Context,
    trace: options.Trace,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder for the generator.")],
    model: Annotated[
        str,
        typer.Option("--model", "-m", metavar="M", help="The kind of generator; see kilowait synth list."),
    ] = "transformer",
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Same seed, same generator.")] = 0,
    settings: Annotated[
        str | None,
        typer.Option("--set", metavar="S=V,...", help="Settings of the generator; see kilowait synth list."),
    ] = None,
    names: Annotated[
        bool,
        typer.Option(
            "--names", help="Keep numbers and names of users and accounts, in the folder and in samples."
        ),
    ] = False,
    device: Annotated[
        str,
        typer.Option(
            metavar="D", help="Where networks learn: cpu, cuda, or auto for a GPU where there is one."
        ),
    ] = "auto",
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with a fit that was interrupted, from its last checkpoint."),
    ] = False,
    jobs: options.Rows = None,
    columns: options.Columns = None,
    format: options.Format = None,
    strict: options.Strict = False,
    force: options.Force = False,
) -> None:
    """Learn a workload from a log.

    The folder holds numbers only, no code, unless the generator is one of sdv or realtabformer, which keep pickles.
    What they tell of the log is on the page on synthetic workloads. While a network of kilowait's own learns
    (transformer, ctgan, tvae, copulagan, diffusion), its state is kept in DIR.training; --resume ends with the folder
    an uninterrupted fit would have written, byte for byte on a processor.
    """
    from kilowait.experiments.fit_generator import fit_folder
    from kilowait.experiments.inputs import workload_of
    from kilowait.experiments.synthetic_workload import parse_settings

    chosen = None if settings is None else parse_settings(settings)
    with console.busy(f"reading {trace} ..."):
        read = workload_of(trace, format=format, columns=columns, strict=strict, rows=jobs)
    state = state_folder(out, resume=resume, force=force)
    with _progress() as told, resumable(state, resume=resume):
        manifest = read.provenance(trace, console.command(context), console.today())
        made = fit_folder(
            read.jobs,
            model,
            out,
            seed=seed,
            names=names,
            settings=chosen,
            manifest=manifest,
            force=force,
            told=told,
            device=device,
            state=state,
            resume=resume,
        )
    print(f"{made.name} fitted to {console.count(len(read.jobs), 'job')} of {trace}, written to {out}")
    if made.privacy is not None:
        print(
            f"epsilon {made.privacy['epsilon']:.2f}, delta {made.privacy['delta']:g}, of any one user; what is taken "
            f"as public and what is not covered is in {out / 'card.json'}"
        )


@app.command(epilog=_SAMPLE)
def sample(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder written by kilowait synth fit.")],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="FILE", help="File to write, as in kilowait traces convert."),
    ],
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-n", metavar="N", min=1, help="How many jobs.")
    ] = None,
    days: Annotated[
        float | None,
        typer.Option(metavar="D", help="For how many days instead; they may be more than the log has."),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Same seed, same jobs.")] = 0,
    load: Annotated[
        float | None,
        typer.Option(
            metavar="X", help="Offered load, up to 1.5: more or fewer jobs a day, at the same hours."
        ),
    ] = None,
    mix: Annotated[
        str | None,
        typer.Option(
            metavar="C=V*F,...",
            help="Kinds of job that come F times as often, or are a share of all: nodes=1:4*0.5,64:128*2 or "
            "nodes=1=60%; columns as in --where.",
        ),
    ] = None,
    grow: Annotated[
        str | None,
        typer.Option(
            metavar="C=V*F,...",
            help="Queues, users or accounts that submit F times as many jobs: queue=long*3,user=1*2. Where names were "
            "not kept, users and accounts are ranks: 1 used most node-seconds.",
        ),
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Nodes of another machine: sizes of jobs are scaled to it, the load stays."
        ),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(
            metavar="C=V,...",
            help="Only such jobs of the workload: queue=long, nodes=1:16, hour=8:18, weekday=0/1/2; also gpus, "
            "estimate_s, runtime_s, status.",
        ),
    ] = None,
    cluster: options.Cluster = "auto",
    to: Annotated[
        str | None,
        typer.Option(metavar="F", help="swf, csv, parquet or batsim; else by the ending of --out."),
    ] = None,
    trust: Annotated[
        str | None,
        typer.Option(
            metavar="PYTHON",
            help="Let this Python run the code in the folder: one of sdv or realtabformer that you trust.",
        ),
    ] = None,
) -> None:
    """Draw jobs from a generator and write them as a job log; what-ifs can be combined.

    Parquet is written part by part, so that samples may be larger than memory.
    """
    from kilowait.experiments.synthetic_workload import sample_file
    from kilowait.synth.conditions import parse_conditions
    from kilowait.synth.what_if import WhatIf, parse_changes

    wanted = None if where is None else parse_conditions(where)
    what_if = WhatIf(
        load,
        {} if mix is None else parse_changes(mix, "mix"),
        {} if grow is None else parse_changes(grow, "grow"),
        nodes,
    )
    with _progress() as told:
        made = sample_file(
            folder,
            out,
            jobs=jobs,
            days=days,
            seed=seed,
            conditions=wanted,
            what_if=what_if,
            cluster=cluster,
            format=to,
            trust=trust,
            told=told,
        )
    print(
        f"{console.count(made.jobs, 'job')} over {console.span(made.span_s)}, offered load {made.load:.2f}, "
        f"written to {out}"
    )


app.command(epilog=synth_score.EPILOG)(synth_score.score)


@app.command("list", epilog=_LIST)
def list_(json: options.Json = False) -> None:
    """List the kinds of generator, and what can be set."""
    from kilowait.synth.registry import GENERATORS, OUTSIDE, settings_of

    rows = [(name, what, settings_of(name)) for name, (_, what) in (GENERATORS | OUTSIDE).items()]
    if json:
        console.json_document([{"name": name, "what": what, "settings": known} for name, what, known in rows])
        return
    cells = [
        [
            name,
            what,
            ", ".join(f"{key}={'auto' if value in (None, '') else value}" for key, value in known.items()),
        ]
        for name, what, known in rows
    ]
    console.table(["name", "what it is", "settings"], cells, left=3)
