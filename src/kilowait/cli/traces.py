"""``kilowait traces``: describe, convert, anonymize, list and fetch job logs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kilowait.cli import console, options
from kilowait.cli import option_groups as groups
from kilowait.cli.anonymize import EXAMPLES, anonymize

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Job logs: describe, convert, anonymize, list, fetch.",
    **console.PLAIN,
)

_DESCRIBE = """\b
Examples:
  kilowait traces describe lublin:1000:128:0.9:7
  kilowait traces describe logs/*.swf.gz --json"""
_CONVERT = """\b
Examples:
  kilowait traces convert log.swf.gz log.parquet
  kilowait traces convert lublin:1000:128:0.9:7 synthetic.swf
  kilowait traces convert sacct.txt workload.json --to batsim --cluster nodes:128"""
_LIST = """\b
Example:
  kilowait traces list"""
_FETCH = """\b
Example:
  kilowait traces fetch kth-sp2"""


@app.command(epilog=_DESCRIBE)
@groups.with_groups
def describe(
    *,
    traces: Annotated[list[str], typer.Argument(metavar="TRACE...", help=f"Job logs, or {options.WORKLOAD_SYNTAX}.")],
    cluster: options.Cluster = "auto",
    log_format: groups.LogFormatOptions,
    json: options.Json = False,
) -> None:
    """Describe job logs: number, sizes and run times of jobs, and which rows were dropped or corrected and why."""
    from kilowait.experiments.scenario_inputs import read_workload, resolve_cluster
    from kilowait.traces import describe as described

    facts = []
    for trace in traces:
        with console.busy(f"reading {trace} ..."):
            workload = read_workload(trace, **vars(log_format))
        nodes = None if cluster == "auto" else resolve_cluster(cluster, workload.jobs)[0].nodes
        facts.append({"trace": trace, **described(workload.jobs, workload.cleaning_report, nodes=nodes)})
        if not json:
            from kilowait.cli.output.trace import show_description

            if len(facts) > 1:
                print()
            show_description(trace, facts[-1], workload.cleaning_report)
    if json:
        console.json_document(facts if len(facts) > 1 else facts[0])


@app.command(epilog=_CONVERT)
@groups.with_groups
def convert(
    *,
    source: Annotated[str, typer.Argument(metavar="IN", help=f"A job log, or {options.WORKLOAD_SYNTAX}.")],
    target: Annotated[
        Path, typer.Argument(metavar="OUT", help="File to write; compressed if its name ends in .gz or .zst.")
    ],
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="FORMAT",
            help="Format: swf, csv, parquet, batsim or batsim-platform; by default from the name of OUT.",
        ),
    ] = None,
    cluster: options.Cluster = "auto",
    load: options.Load = None,
    jobs: options.Jobs = None,
    log_format: groups.LogFormatOptions,
) -> None:
    """Convert a job log to another format, optionally scaled to another load."""
    from kilowait.experiments.scenario_inputs import read_workload, rescale_to_load, resolve_cluster
    from kilowait.traces import write_trace

    with console.busy(f"converting {source} ..."):
        workload = read_workload(source, **vars(log_format), rows=jobs)
        machine, text = resolve_cluster(cluster, workload.jobs)
        if text is not None:
            console.note(text)
        write_trace(rescale_to_load(workload.jobs, machine, load), target, format=to, cluster=machine)
    if workload.cleaning_report is not None:
        report = workload.cleaning_report
        console.note(f"{source} is read as {report.format}: {report.format_reason}")
        if report.dropped or report.corrected:
            console.note("; ".join(report.lines()))
    print(f"{console.count(len(workload.jobs), 'job')} written to {target}")


app.command(epilog=EXAMPLES)(anonymize)


@app.command("list", epilog=_LIST)
def list_(json: options.Json = False) -> None:
    """List the logs of the Parallel Workloads Archive that can be fetched."""
    from kilowait.traces import ARCHIVE_LOGS

    names = {name: place.rpartition("/")[2] for name, place in ARCHIVE_LOGS.items()}
    if json:
        console.json_document([{"name": name, "file": file} for name, file in names.items()])
        return
    console.table(["name", "file"], [[name, file] for name, file in names.items()], left=2)


@app.command(epilog=_FETCH)
def fetch(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of a log; see kilowait traces list.")],
    cache: Annotated[
        Path | None, typer.Option("--cache", metavar="DIR", help="Folder for downloaded logs.", show_default=False)
    ] = None,
    base_url: Annotated[
        str | None, typer.Option("--base-url", metavar="URL", help="Mirror of the archive.", show_default=False)
    ] = None,
) -> None:
    """Download a log of the Parallel Workloads Archive by name, unless it is cached, and print its path.

    An interrupted download resumes where it stopped; the file is verified by its checksum.
    """
    from kilowait.traces import fetch as fetched
    from kilowait.traces.fetch import ARCHIVE_URL

    with console.progress(0) as bar:

        def report(done: int, total: int | None) -> None:
            if bar is not None:
                bar.update(bar.task_ids[0], description=f"{name}, bytes", completed=done, total=total)

        path = fetched(name, cache_dir=cache, base_url=base_url or ARCHIVE_URL, progress=report)
    print(path)
