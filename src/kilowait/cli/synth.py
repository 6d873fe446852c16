"""``kilowait synth``: learn a workload from a log, draw jobs like its, and say how like they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from kilowait.cli import options, show, synth_score

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Workloads learned from a log: fit, sample, score, list.",
    **show.PLAIN,
)

_FIT = """\b
Examples:
  kilowait synth fit log.swf.gz --model transformer --out models/ours
  kilowait synth fit lublin:5000:128:0.9:7 --model copula --out models/made
  kilowait synth fit log.swf.gz --jobs 20000 --set passes=10,menu=3 --out models/first"""
_SAMPLE = """\b
Examples:
  kilowait synth sample models/ours --jobs 50000 --seed 1 --out made.swf.gz
  kilowait synth sample models/ours --jobs 10000 --load 0.9 --where nodes=1:16,hour=8:18 --out busy.parquet"""
_LIST = """\b
Example:
  kilowait synth list"""


@contextmanager
def _progress() -> Iterator[Callable[[str, float], None]]:
    """A bar in per cent, on a terminal."""
    with show.progress(100) as bar:

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
    jobs: options.Rows = None,
    columns: options.Columns = None,
    format: options.Format = None,
    strict: options.Strict = False,
    force: options.Force = False,
) -> None:
    """Learn a workload from a log.

    The folder holds numbers only, no code. What they tell of the log is on the page on synthetic workloads.
    """
    from kilowait.experiments.inputs import workload_of
    from kilowait.experiments.synthetic import fit_folder, parse_settings

    chosen = None if settings is None else parse_settings(settings)
    with show.busy(f"reading {trace} ..."):
        read = workload_of(trace, format=format, columns=columns, strict=strict, rows=jobs)
    with _progress() as told:
        manifest = read.provenance(trace, show.command(context), show.today())
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
        )
    print(f"{made.name} fitted to {show.count(made.facts.jobs, 'job')} of {trace}, written to {out}")


@app.command(epilog=_SAMPLE)
def sample(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder written by kilowait synth fit.")],
    jobs: Annotated[int, typer.Option("--jobs", "-n", metavar="N", min=1, help="How many jobs.")],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="FILE", help="File to write, as in kilowait traces convert."),
    ],
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Same seed, same jobs.")] = 0,
    load: options.Load = None,
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
) -> None:
    """Draw jobs from a generator and write them as a job log."""
    from kilowait.experiments.synthetic import sample_file
    from kilowait.synth.conditions import parse_conditions

    wanted = None if where is None else parse_conditions(where)
    with _progress() as told:
        made, offered = sample_file(
            folder, jobs, out, seed=seed, conditions=wanted, load=load, cluster=cluster, format=to, told=told
        )
    days = float(made["submit_s"].max() - made["submit_s"].min())
    print(
        f"{show.count(len(made), 'job')} over {show.span(days)}, offered load {offered:.2f}, written to {out}"
    )


app.command(epilog=synth_score.EPILOG)(synth_score.score)


@app.command("list", epilog=_LIST)
def list_(json: options.Json = False) -> None:
    """List the kinds of generator, and what can be set."""
    from kilowait.synth.generator import GENERATORS, settings_of

    rows = [(name, what, settings_of(name)) for name, (_, what) in GENERATORS.items()]
    if json:
        show.json_document([{"name": name, "what": what, "settings": known} for name, what, known in rows])
        return
    cells = [
        [name, what, ", ".join(f"{key}={'auto' if value is None else value}" for key, value in known.items())]
        for name, what, known in rows
    ]
    show.table(["name", "what it is", "settings"], cells, left=3)
