"""``kilowait traces``: describe, convert, anonymize, list and fetch job logs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kilowait.cli import console
from kilowait.cli.options import Json, verb
from kilowait.experiments.settings import WORKLOAD_SYNTAX, Cluster, Jobs, Load, LogFormat
from kilowait.experiments.workload_settings import AnonymizationSettings, LogSource, WrittenFormat
from kilowait.settings import Argument, Option

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
_ANONYMIZE = """\b
Examples:
  kilowait traces anonymize sacct.txt                                             # check only: nothing is written
  kilowait traces anonymize sacct.txt --out public/log.parquet --key-file ~/site.key --new-key
  kilowait traces anonymize june.txt --out public/june.swf.gz --key-file ~/site.key --shift-dates random
  kilowait traces anonymize log.swf --out public/log.csv --key-file site.key --coarsen submit_s=1d --drop-below-k"""
_LIST = """\b
Example:
  kilowait traces list"""
_FETCH = """\b
Example:
  kilowait traces fetch kth-sp2"""


@verb(app, epilog=_DESCRIBE)
def describe(
    *,
    traces: Annotated[list[str], Argument("TRACE...", f"Job logs, or {WORKLOAD_SYNTAX}.")],
    cluster: Cluster = "auto",
    log_format: LogFormat,
    json: Json = False,
) -> None:
    """Describe job logs: number, sizes and run times of jobs, and which rows were dropped or corrected and why."""
    from kilowait.experiments.scenario_inputs import read_workload, resolve_machine
    from kilowait.traces import describe as described

    facts = []
    for trace in traces:
        with console.busy(f"reading {trace} ..."):
            workload = read_workload(trace, **vars(log_format))
        machine = None if cluster == "auto" else resolve_machine(cluster, workload.jobs)
        jobs = workload.jobs if machine is None else machine.jobs
        size = None if machine is None else machine.cluster.size
        facts.append({"trace": trace, **described(jobs, workload.cleaning_report, size=size)})
        if not json:
            from kilowait.cli.output.workload import show_description

            if len(facts) > 1:
                print()
            show_description(trace, facts[-1], workload.cleaning_report)
    if json:
        console.json_document(facts if len(facts) > 1 else facts[0])


@verb(app, epilog=_CONVERT)
def convert(
    *,
    source: Annotated[str, Argument("IN", f"A job log, or {WORKLOAD_SYNTAX}.")],
    target: Annotated[Path, Argument("OUT", "File to write; compressed if its name ends in .gz or .zst.")],
    to: Annotated[
        str | None,
        Option("FORMAT", "Format: swf, csv, parquet, batsim or batsim-platform; by default from the name of OUT."),
    ] = None,
    cluster: Cluster = "auto",
    load: Load = None,
    jobs: Jobs = None,
    log_format: LogFormat,
) -> None:
    """Convert a job log to another format, optionally scaled to another load."""
    from kilowait.experiments.scenario_inputs import read_workload, rescale_to_load, resolve_machine
    from kilowait.traces import write_trace

    with console.busy(f"converting {source} ..."):
        workload = read_workload(source, **vars(log_format), rows=jobs)
        machine = resolve_machine(cluster, workload.jobs)
        if machine.note is not None:
            console.note(machine.note)
        written = rescale_to_load(machine.jobs, machine.cluster, load)
        write_trace(written, target, format=to, cluster=machine.cluster)
    if workload.cleaning_report is not None:
        report = workload.cleaning_report
        console.note(f"{source} is read as {report.format}: {report.format_reason}")
        if report.dropped or report.corrected:
            console.note("; ".join(report.lines()))
    print(f"{console.count(len(workload.jobs), 'job')} written to {target}")


@verb(
    app,
    "trace out key new_key hash keep drop coarsen shift k quasi_identifiers enforce fail_below_k to jobs log_format "
    "json",
    epilog=_ANONYMIZE,
)
def anonymize(
    log: LogSource,
    settings: AnonymizationSettings,
    out: Annotated[
        Path | None,
        Option("FILE", "File to write, as in kilowait traces convert; without it only the check is printed.", "-o"),
    ] = None,
    to: WrittenFormat = None,
    json: Json = False,
) -> None:
    """Anonymize a job log for publication: pseudonyms for users and projects, no job names, new job IDs.

    Without --out nothing is written: the plan and the k-anonymity check are printed.
    """
    from kilowait.cli.output.workload import anonymized_document, show_anonymized
    from kilowait.traces import anonymize, written_format

    secret = anonymize.key_for(settings.key, out, new=settings.new_key)
    if out is not None:
        anonymize.check_output_path(log.trace, out)
    with console.busy(f"reading {log.trace} ..."):
        workload = log.read()
    report = workload.cleaning_report
    if report is not None and (report.dropped or report.corrected):
        console.note("; ".join(report.lines()))
    with console.busy("anonymizing ..."):
        numbers = out is not None and written_format(out, to) == "swf"
        result = settings.apply(workload.jobs, secret, numbers=numbers)
    if not json:
        show_anonymized(log.trace, result)
    if settings.fail_below_k and not settings.enforce:
        result.check.refuse()
    report_file = None
    if out is not None:
        with anonymize.saved_key(secret, settings.key if settings.new_key else None):
            report_file = anonymize.publish(result, out, format=to)
    if json:
        console.json_document(anonymized_document(log.trace, result, out))
        return
    print()
    if out is None:
        print("nothing written: name a file with --out and a key with --key-file")
        return
    print(f"{console.count(len(result.jobs), 'job')} written to {out}")
    if report_file is not None:
        print(f"the changes are listed in {report_file}, because this format has no header for them")


@verb(app, epilog=_LIST, name="list")
def list_(json: Json = False) -> None:
    """List the logs of public archives that can be fetched, and whether their checksums are known."""
    from kilowait.traces import ARCHIVE_LOGS, ARCHIVES

    if json:
        logs = []
        for name, log in ARCHIVE_LOGS.items():
            archive = ARCHIVES[log.archive]
            url = f"{archive.base_url}{log.path}"
            entry = {"name": name, "file": log.file, "archive": log.archive, "url": url, "sha256": log.sha256}
            logs.append({**entry, "terms": archive.terms})
        console.json_document(logs)
        return
    rows = [
        [name, log.archive, log.file, "unknown" if log.sha256 is None else log.sha256[:16]]
        for name, log in ARCHIVE_LOGS.items()
    ]
    console.table(["name", "archive", "file", "sha256"], rows, left=4)
    print()
    console.facts([(name, f"{archive.title}; {archive.terms}") for name, archive in ARCHIVES.items()])


@verb(app, epilog=_FETCH)
def fetch(
    name: Annotated[str, Argument("NAME", "Name of a log; see kilowait traces list.")],
    cache: Annotated[Path | None, Option("DIR", "Folder for downloaded logs.")] = None,
    base_url: Annotated[str | None, Option("URL", "Mirror of the archive.")] = None,
    allow_unpinned: Annotated[
        bool, Option(None, "Download a log whose checksum is unknown, without verification.")
    ] = False,
) -> None:
    """Download a log of a public archive by name, unless it is cached, and print its path.

    An interrupted download resumes where it stopped; the file is verified by its checksum.
    """
    from kilowait.traces import fetch as fetched

    with console.progress(0) as bar:

        def report(done: int, total: int | None) -> None:
            if bar is not None:
                bar.update(bar.task_ids[0], description=f"{name}, bytes", completed=done, total=total)

        path = fetched(name, cache_dir=cache, base_url=base_url, allow_unpinned=allow_unpinned, progress=report)
    print(path)
