"""``kilowait synth``: fit generators of synthetic workloads to logs, sample jobs, score their quality."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from kilowait.cli import console
from kilowait.cli.options import Force, Json, verb
from kilowait.experiments.settings import UnpackLimit
from kilowait.experiments.workload_settings import (
    GeneratorSettings,
    LogSource,
    SampleSettings,
    ScoreSettings,
    WrittenFormat,
)
from kilowait.settings import Option

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
_SCORE = """\b
Examples:
  kilowait synth score log.swf.gz synthetic.swf.gz
  kilowait synth score log.swf.gz synthetic.swf.gz --held-out-log other_weeks.swf.gz --json
  kilowait synth score log.swf.gz synthetic.swf.gz --out runs/score; kilowait report runs/score"""
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


@verb(app, "trace out model seed settings keep_names device resume jobs log_format force", epilog=_FIT)
def fit(
    context: typer.Context,
    log: LogSource,
    generator: GeneratorSettings,
    out: Annotated[Path, Option("DIR", "Folder of the generator.", "-o")],
    resume: Annotated[bool, Option(None, "Resume an interrupted fit from its last checkpoint.")] = False,
    force: Force = False,
) -> None:
    """Fit a generator of synthetic workloads to a log.

    The folder contains numbers only, no code, except for generators of sdv and realtabformer, which store pickles. The
    documentation page on synthetic workloads describes what a folder reveals about the log. Neural generators
    (transformer, ctgan, tvae, copulagan, diffusion) write checkpoints to DIR.training; a fit continued with --resume
    gives the same folder as an uninterrupted one, byte for byte on a CPU.
    """
    from kilowait.experiments.generators import fit_folder, parse_settings
    from kilowait.experiments.training.resume_checks import resumable

    if generator.settings is not None:
        parse_settings(generator.settings)  # raises errors before the log is read
    with console.busy(f"reading {log.trace} ..."):
        workload = log.read()
    with resumable(out, resume=resume, force=force, console=console) as state, _progress() as progress:
        fitted = fit_folder(
            workload.jobs,
            generator,
            out,
            manifest=workload.provenance(log.trace, console.command(context), console.today()),
            force=force,
            progress=progress,
            state=state,
            resume=resume,
        )
    print(f"{fitted.name} fitted to {console.count(len(workload.jobs), 'job')} of {log.trace}, written to {out}")
    if fitted.privacy is not None:
        print(
            f"differential privacy: epsilon {fitted.privacy['epsilon']:.2f}, delta {fitted.privacy['delta']:g}, for "
            f"each user; {out / 'card.json'} lists what is treated as public and what is not covered"
        )


@verb(app, "folder out jobs days seed load job_mix scale_jobs nodes where cluster to allow_pickle_with", epilog=_SAMPLE)
def sample(
    settings: SampleSettings,
    out: Annotated[Path, Option("FILE", "File to write, as in kilowait traces convert.", "-o")],
    to: WrittenFormat = None,
) -> None:
    """Sample jobs from a generator and write them as a job log; the what-if options can be combined.

    Parquet is written in chunks, so that samples may be larger than memory.
    """
    from kilowait.experiments.generators import sample_file

    with _progress() as progress:
        written = sample_file(settings, out, format=to, progress=progress)
    print(
        f"{console.count(written.jobs, 'job')} over {console.span(written.span_s)}, offered load {written.load:.2f}, "
        f"written to {out}"
    )


@verb(app, "real synthetic held_out_log out policies cluster seed jobs unpack_limit json force", epilog=_SCORE)
def score(
    context: typer.Context,
    settings: ScoreSettings,
    out: Annotated[Path | None, Option("DIR", "Write a folder for kilowait report.", "-o")] = None,
    unpack_limit: UnpackLimit = None,
    json: Json = False,
    force: Force = False,
) -> None:
    """Compare synthetic with real jobs: distributions, correlations, a classifier, arrivals, users, simulated waits.

    With --held-out-log, also measure whether the generator leaks the jobs it was fitted to. With --out the results are
    written to a folder for kilowait report, without the jobs themselves.
    """
    from kilowait.cli.output.workload import show_score
    from kilowait.cluster.toml import to_dict
    from kilowait.evaluation.storage import writable_folder
    from kilowait.experiments.scenario_inputs import read_workload, resolve_cluster
    from kilowait.experiments.synthetic_score import save_score
    from kilowait.experiments.synthetic_score import score_synthetic as scored

    if out is not None:
        context.with_resource(writable_folder(out, force=force))
    real, synthetic, held_out_log = settings.real, settings.synthetic, settings.held_out_log
    policy_names = [name.strip() for name in settings.policies.split(",")]
    with console.status() as update:
        update("reading ...")
        workloads = [
            read_workload(trace, unpack_limit=unpack_limit, rows=settings.jobs if place == 0 else None)
            for place, trace in enumerate([real, synthetic, *([held_out_log] if held_out_log else [])])
        ]
        machine, guessed = resolve_cluster(settings.cluster, workloads[0].jobs)
        score = scored(
            workloads[0].jobs,
            workloads[1].jobs,
            held_out=workloads[2].jobs if held_out_log else None,
            cluster=settings.cluster,
            policies=policy_names,
            seed=settings.seed,
            progress=lambda what, share: update(f"{what} ..."),
        )
    if guessed is not None:
        console.note(guessed)
    names = {"real": real, "synthetic": synthetic, "held_out": held_out_log}
    if out is not None:
        scenario: dict[str, Any] = {**names, "jobs": settings.jobs, "policies": policy_names, "backfill": "easy"}
        scenario |= {"on_oversized": "drop", "seed": settings.seed, "cluster": to_dict(machine)}
        manifest = workloads[0].provenance(real, console.command(context), console.today())
        manifest["seeds"] = {"classifier": settings.seed}
        paths = [name for name in names.values() if name is not None]
        manifest["inputs"] = {name: workload.sha256 for name, workload in zip(paths, workloads, strict=True)}
        save_score(out, score, scenario=scenario, manifest=manifest, force=force)
    if json:
        console.json_document({**names, **score.document(), "out": out})
        return
    show_score(real, synthetic, score)
    if out is not None:
        print(f"\nwritten to {out}; write a page: kilowait report {out}")


@verb(app, epilog=_LIST, name="list")
def list_(json: Json = False) -> None:
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
