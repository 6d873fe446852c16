"""``kilowait traces anonymize``: pseudonymize a job log for publication and check its k-anonymity."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kilowait.cli import console, options
from kilowait.cli import option_groups as groups

if TYPE_CHECKING:
    from kilowait.traces.anonymize import AnonymityCheck, AnonymizedLog, SuggestedRule

__all__ = ["EXAMPLES", "anonymize"]

EXAMPLES = """\b
Examples:
  kilowait traces anonymize sacct.txt                                             # check only: nothing is written
  kilowait traces anonymize sacct.txt --out public/log.parquet --key-file ~/site.key --new-key
  kilowait traces anonymize june.txt --out public/june.swf.gz --key-file ~/site.key --shift-dates random
  kilowait traces anonymize log.swf --out public/log.csv --key-file site.key --coarsen submit_s=1d --drop-below-k"""
NAMES_SHOWN = 12
"""Maximum number of kept names that are shown for inspection."""


@groups.with_groups
def anonymize(
    *,
    trace: options.Trace,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="File to write, as in kilowait traces convert; without it only the check is printed.",
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            "--key-file", metavar="FILE", help="Secret key; the same key gives the same pseudonyms. Never publish it."
        ),
    ] = None,
    new_key: Annotated[
        bool, typer.Option("--new-key", help="Create the key file first: 32 random bytes, readable only by you.")
    ] = False,
    hash: Annotated[
        str | None,
        typer.Option("--hash", metavar="C,...", help="Also hash these columns: queue, qos, name, gpu_types."),
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(
            "--keep", metavar="C,...", help="Keep unchanged what is hashed or dropped by default: account, header."
        ),
    ] = None,
    drop: Annotated[
        str | None,
        typer.Option("--drop", metavar="C,...", help="Drop columns, or facts such as time_zone and max_procs."),
    ] = None,
    coarsen: Annotated[
        str | None,
        typer.Option(
            "--coarsen", metavar="MAP", help="Round values: submit_s=60s,runtime_s=10s,memory_mb=1024,nodes=pow2."
        ),
    ] = None,
    shift: Annotated[
        str | None,
        typer.Option(
            "--shift-dates",
            metavar="SPAN|random",
            help="Shift all dates: by a span such as 7d, or (random) by a number of whole weeks derived from the key.",
        ),
    ] = None,
    k: Annotated[
        int,
        typer.Option(
            "--k", metavar="K", help="k of k-anonymity: minimum number of users with the same quasi-identifiers."
        ),
    ] = 5,
    quasi_identifiers: Annotated[
        str | None,
        typer.Option(
            "--quasi-identifiers",
            metavar="C,...",
            help="What an attacker may know about a job: columns, and hour, day, week, hour_of_day, weekday of its "
            "submission. Default: nodes,cores,gpus,estimate_s,queue,hour, as far as the log has them.",
            show_default=False,
        ),
    ] = None,
    enforce: Annotated[
        bool, typer.Option("--drop-below-k", help="Leave out jobs in classes with fewer than k users.")
    ] = False,
    fail_below_k: Annotated[
        bool, typer.Option("--fail-below-k", help="Write nothing and exit with 2 if any class has fewer than k users.")
    ] = False,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="FORMAT",
            help="Format: swf, csv, parquet or batsim; by default from the name of the --out file.",
        ),
    ] = None,
    jobs: options.Jobs = None,
    log_format: groups.LogFormatOptions,
    json: options.Json = False,
) -> None:
    """Anonymize a job log for publication: pseudonyms for users and projects, no job names, new job IDs.

    Without --out nothing is written: the plan and the k-anonymity check are printed.
    """
    from kilowait.experiments.scenario_inputs import read_workload
    from kilowait.traces import anonymize, written_format

    secret = anonymize.key_for(key, out, new=new_key)
    if out is not None:
        anonymize.check_output_path(trace, out)
    with console.busy(f"reading {trace} ..."):
        workload = read_workload(trace, **vars(log_format), rows=jobs)
    log = workload.jobs
    if workload.cleaning_report is not None and (
        workload.cleaning_report.dropped or workload.cleaning_report.corrected
    ):
        console.note("; ".join(workload.cleaning_report.lines()))
    plan = anonymize.make_plan(
        log,
        hashed=anonymize.parse_names(hash),
        keep=anonymize.parse_names(keep),
        drop=anonymize.parse_names(drop),
        coarsen=None if coarsen is None else anonymize.parse_coarsening(coarsen),
        shift=anonymize.parse_shift(shift),
    )
    with console.busy("anonymizing ..."):
        result = anonymize.anonymize(
            log,
            secret,
            plan,
            k=k,
            quasi=None if quasi_identifiers is None else anonymize.parse_names(quasi_identifiers),
            enforce=enforce,
            numbers=out is not None and written_format(out, to) == "swf",
        )
    if not json:
        _show_plan(trace, result)
        _show_check(result)
    if fail_below_k and not enforce:
        result.check.refuse()
    report_file = None
    if out is not None:
        if new_key and key is not None:
            secret.save(key)
        report_file = anonymize.publish(result, out, format=to)
    if json:
        console.json_document(_document(trace, result, out))
        return
    print()
    if out is None:
        print("nothing written: name a file with --out and a key with --key-file")
        return
    print(f"{console.count(len(result.jobs), 'job')} written to {out}")
    if report_file is not None:
        print(f"the changes are listed in {report_file}, because this format has no header for them")


# -- what is printed -----------------------------------------------------------------------------


def _show_plan(trace: str, result: AnonymizedLog) -> None:
    """Print what happens to every column and field."""
    plan = result.plan
    console.title(f"{trace}: {console.count(result.check.jobs, 'job')}")
    rows = [[name, f"{action}{_names(result, name)}"] for name, action in plan.words().items()]
    for action, verb in (("keep", "kept"), ("drop", "dropped")):
        fields = [name for name, done in plan.meta.items() if done == action]
        if fields:
            rows.append(["about the log", f"{verb}: {', '.join(fields)}"])
    rows.append(["anything else", "not read and not published: comments, work directories, names of nodes"])
    console.table(["column", "published"], rows, left=2, wrapped=1)
    if plan.shift is not None and not plan.dated:
        console.note("the log has no dates to shift")
    elif isinstance(plan.shift, float) and plan.shift % (7 * 86400) != 0:
        console.note("the shift is not a number of whole weeks: it changes weekdays or times of day")
    if plan.absent:
        console.note(f"not in this log: {', '.join(plan.absent)}")


def _names(result: AnonymizedLog, name: str) -> str:
    """The number of pseudonyms in a column, or the names that it keeps."""
    table, action = result.jobs, result.plan.actions[name]
    if action == "hash":
        return f": {console.count(len(set(table[name].tolist()) - {-1}), 'pseudonym')}"
    if action != "keep" or name not in table.labels:
        return ""
    names = table.labels[name]
    suffix = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return f", check these names: {', '.join(names[:NAMES_SHOWN])}{suffix}"


def _show_check(result: AnonymizedLog) -> None:
    """Print the k-anonymity check, and changes that would improve it."""
    check = result.check
    print()
    console.title(f"k-anonymity: classes of jobs with equal {', '.join(check.quasi)}")
    rows = [
        ("classes", f"{check.classes:,}; {check.classes_below:,} of them with fewer than {check.k} {check.counted_in}")
    ]
    rows.append((f"jobs below {check.k}", f"{_share(check.jobs_below, check.jobs)}"))
    if check.has_users:
        rows.append((f"users below {check.k}", f"{_share(check.users_below, check.users)} have such a job"))
        rows.append(("unique users", f"{_share(check.users_alone, check.users)} have a job in a class of their own"))
    else:
        rows.append(("unique jobs", f"{_share(check.jobs_alone, check.jobs)} are alone in their class"))
    if result.suppressed:
        freed = (
            f"; {console.count(result.dependencies_removed, 'job')} lost the dependency on one"
            if result.dependencies_removed
            else ""
        )
        rows.append(("suppressed", f"{console.count(result.suppressed, 'job')}: all below {check.k}{freed}"))
    console.facts(rows)
    if not check.has_users:
        console.note("the log has no users, so classes count jobs; k jobs of one user do not hide that user")
    if check.smallest:
        print()
        head = [*check.quasi, "jobs", *(["users"] if check.has_users else [])]
        cells = [
            [*small.known, f"{small.jobs:,}", *([f"{small.people:,}"] if check.has_users else [])]
            for small in check.smallest
        ]
        print("the smallest classes")
        console.table(head, cells, left=0)
    if result.suggestions:
        print()
        _show_remedies(check, result.suggestions)
    elif check.jobs_below:
        print("\nno coarsening helps; --drop-below-k leaves these jobs out")


def _show_remedies(check: AnonymityCheck, remedies: tuple[SuggestedRule, ...]) -> None:
    users = [f"users below {check.k}"] if check.has_users else []
    rows = [["without changes", _share(check.jobs_below, check.jobs), *([f"{check.users_below:,}"] if users else [])]]
    for place, remedy in enumerate(remedies):
        change = f"--drop {remedy.column}" if remedy.step is None else f"--coarsen {remedy.column}={remedy.step}"
        rows.append(
            [
                f"{'and ' if place else ''}{change}",
                _share(remedy.jobs_below, check.jobs),
                *([f"{remedy.users_below:,}"] if users else []),
            ]
        )
    console.table(["suggested changes, cumulative", f"jobs below {check.k}", *users], rows)


def _share(part: int, total: int) -> str:
    return f"{part:,} of {total:,} ({console.percent(part / total if total else 0.0)})"


def _document(trace: str, result: AnonymizedLog, out: Path | None) -> dict[str, Any]:
    check = result.check
    counts = {
        name: getattr(check, name)
        for name in ("k quasi jobs users classes classes_below jobs_below users_below users_alone jobs_alone".split())
    }
    return {
        "trace": trace,
        "out": None if out is None else str(out),
        "jobs": len(result.jobs),
        "suppressed": result.suppressed,
        "columns": result.plan.words(),
        "meta": dict(result.plan.meta),
        "check": {**counts, "counted_in": check.counted_in},
        "smallest": [vars(small) for small in check.smallest],
        "remedies": [vars(remedy) for remedy in result.suggestions],
    }
