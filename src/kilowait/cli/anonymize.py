"""``kilowait traces anonymize``: a job log that a site may publish, and who can still be told apart in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kilowait.cli import console, options

if TYPE_CHECKING:
    from kilowait.traces.anonymize import AnonymityCheck, AnonymizedLog, SuggestedRule

__all__ = ["EXAMPLES", "anonymize"]

EXAMPLES = """\b
Examples:
  kilowait traces anonymize sacct.txt                                             # look first: nothing is written
  kilowait traces anonymize sacct.txt --out public/log.parquet --key ~/site.key --new-key
  kilowait traces anonymize june.txt --out public/june.swf.gz --key ~/site.key --shift random
  kilowait traces anonymize log.swf --out public/log.csv --key ~/site.key --coarsen submit_s=1d,nodes=pow2 --enforce"""
NAMES_SHOWN = 12
"""Names that are kept are shown, so that somebody looks at them; of more, the first ones."""


def anonymize(
    trace: options.Trace,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="File to write, as in traces convert; without it: look only."
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The secret key; the same key gives the same pseudonyms. Never publish it."
        ),
    ] = None,
    new_key: Annotated[
        bool,
        typer.Option("--new-key", help="Make the key file first: 32 random bytes, readable by you alone."),
    ] = False,
    hash: Annotated[
        str | None, typer.Option(metavar="C,...", help="Also hash: queue, qos, name, gpu_types.")
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(
            metavar="C,...", help="Keep as it is, though it is hashed or dropped otherwise: account, header."
        ),
    ] = None,
    drop: Annotated[
        str | None, typer.Option(metavar="C,...", help="Drop: columns, or time_zone, max_procs, ...")
    ] = None,
    coarsen: Annotated[
        str | None,
        typer.Option(metavar="MAP", help="Round: submit_s=60s,runtime_s=10s,memory_mb=1024,nodes=pow2."),
    ] = None,
    shift: Annotated[
        str | None,
        typer.Option(
            metavar="SPAN|random",
            help="Other dates: by 7d, or by whole weeks that belong to the key (random).",
        ),
    ] = None,
    k: Annotated[int, typer.Option("--k", metavar="K", help="Users that must look alike.")] = 5,
    quasi: Annotated[
        str | None,
        typer.Option(
            metavar="C,...",
            help="What others may know of a job: columns, and hour, day, week, hour_of_day, weekday of its submission. "
            "Default: nodes,cores,gpus,estimate_s,queue,hour, as far as the log has them.",
            show_default=False,
        ),
    ] = None,
    enforce: Annotated[
        bool, typer.Option("--enforce", help="Leave out the jobs in classes below K.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Write nothing, and exit with 2, if any class is below K.")
    ] = False,
    to: Annotated[
        str | None,
        typer.Option(metavar="F", help="swf, csv, parquet or batsim; else by the ending of --out."),
    ] = None,
    jobs: options.Rows = None,
    columns: options.Columns = None,
    format: options.Format = None,
    json: options.Json = False,
) -> None:
    """Make a job log that may be published: pseudonyms for users and projects, job names dropped, ids renumbered.

    Without --out nothing is written: the plan, and a check of who can still be told apart, are printed.
    """
    from kilowait.experiments.inputs import workload_of
    from kilowait.traces import anonymize, written_format

    secret = anonymize.key_for(key, out, new=new_key)
    if out is not None:
        anonymize.refuse_source(trace, out)
    with console.busy(f"reading {trace} ..."):
        read = workload_of(trace, format=format, columns=columns, rows=jobs)
    log = read.jobs
    if read.ledger is not None and (read.ledger.dropped or read.ledger.mended):
        console.note("; ".join(read.ledger.lines()))
    plan = anonymize.make_plan(
        log,
        hashed=anonymize.parse_names(hash),
        keep=anonymize.parse_names(keep),
        drop=anonymize.parse_names(drop),
        coarsen=None if coarsen is None else anonymize.parse_coarsening(coarsen),
        shift=anonymize.parse_shift(shift),
    )
    with console.busy("hiding and counting ..."):
        made = anonymize.anonymize(
            log,
            secret,
            plan,
            k=k,
            quasi=None if quasi is None else anonymize.parse_names(quasi),
            enforce=enforce,
            numbers=out is not None and written_format(out, to) == "swf",
        )
    if not json:
        _show_plan(trace, made)
        _show_check(made)
    if strict and not enforce:
        made.check.refuse()
    beside = None
    if out is not None:
        if new_key and key is not None:
            secret.save(key)
        beside = anonymize.publish(made, out, format=to)
    if json:
        console.json_document(_document(trace, made, out))
        return
    print()
    if out is None:
        print("nothing written: name a file with --out and a key with --key")
        return
    print(f"{console.count(len(made.jobs), 'job')} written to {out}")
    if beside is not None:
        print(f"what was done to it is in {beside}, for this format has no room for it")


# -- what is printed -----------------------------------------------------------------------------


def _show_plan(trace: str, made: AnonymizedLog) -> None:
    """What happens to every column and field."""
    plan = made.plan
    console.title(f"{trace}: {console.count(made.check.jobs, 'job')}")
    rows = [[name, f"{words}{_names(made, name)}"] for name, words in plan.words().items()]
    for action, said in (("keep", "kept"), ("drop", "dropped")):
        fields = [name for name, done in plan.meta.items() if done == action]
        if fields:
            rows.append(["about the log", f"{said}: {', '.join(fields)}"])
    rows.append(["anything else", "not read, so not published: comments, work directories, names of nodes"])
    console.table(["column", "published"], rows, left=2, wrapped=1)
    if plan.shift is not None and not plan.dated:
        console.note("the log's clock has no dates, so there is nothing to shift")
    elif isinstance(plan.shift, float) and plan.shift % (7 * 86400) != 0:
        console.note("the shift is not whole weeks: days and nights, or weekdays, are not where they were")
    if plan.absent:
        console.note(f"not in this log: {', '.join(plan.absent)}")


def _names(made: AnonymizedLog, name: str) -> str:
    """How many pseudonyms a column has now; or the names that it keeps."""
    table, action = made.jobs, made.plan.actions[name]
    if action == "hash":
        return f": {console.count(len(set(table[name].tolist()) - {-1}), 'pseudonym')}"
    if action != "keep" or name not in table.labels:
        return ""
    names = table.labels[name]
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return f", look at the names: {', '.join(names[:NAMES_SHOWN])}{more}"


def _show_check(made: AnonymizedLog) -> None:
    """Who can still be told apart, and what would help."""
    check = made.check
    print()
    console.title(f"jobs alike in {', '.join(check.quasi)}")
    rows = [
        (
            "classes",
            f"{check.classes:,}; {check.classes_below:,} of them of fewer than {check.k} {check.counted_in}",
        )
    ]
    rows.append((f"jobs below {check.k}", f"{_share(check.jobs_below, check.jobs)}"))
    if check.has_users:
        rows.append((f"users below {check.k}", f"{_share(check.users_below, check.users)} have such a job"))
        rows.append(
            ("users singled out", f"{_share(check.users_alone, check.users)} have a job like no other user's")
        )
    else:
        rows.append(("jobs singled out", f"{_share(check.jobs_alone, check.jobs)} are like no other"))
    if made.suppressed:
        freed = (
            f"; {console.count(made.freed, 'job')} that followed one now follow none" if made.freed else ""
        )
        rows.append(("suppressed", f"{console.count(made.suppressed, 'job')}: all below {check.k}{freed}"))
    console.facts(rows)
    if not check.has_users:
        console.note(
            "the log has no users, so classes count jobs; k jobs of one user would not hide that user"
        )
    if check.smallest:
        print()
        head = [*check.quasi, "jobs", *(["users"] if check.has_users else [])]
        cells = [
            [*small.known, f"{small.jobs:,}", *([f"{small.people:,}"] if check.has_users else [])]
            for small in check.smallest
        ]
        print("the smallest classes")
        console.table(head, cells, left=0)
    if made.remedies:
        print()
        _show_remedies(check, made.remedies)
    elif check.jobs_below:
        print("\nno coarsening that was tried would help; --enforce leaves these jobs out")


def _show_remedies(check: AnonymityCheck, remedies: tuple[SuggestedRule, ...]) -> None:
    people = [f"users below {check.k}"] if check.has_users else []
    rows = [
        ["as it is", _share(check.jobs_below, check.jobs), *([f"{check.users_below:,}"] if people else [])]
    ]
    for place, remedy in enumerate(remedies):
        what = (
            f"--drop {remedy.column}" if remedy.step is None else f"--coarsen {remedy.column}={remedy.step}"
        )
        rows.append(
            [
                f"{'and ' if place else ''}{what}",
                _share(remedy.jobs_below, check.jobs),
                *([f"{remedy.users_below:,}"] if people else []),
            ]
        )
    console.table(["what would help, step by step", f"jobs below {check.k}", *people], rows)


def _share(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,} ({console.percent(part / whole if whole else 0.0)})"


def _document(trace: str, made: AnonymizedLog, out: Path | None) -> dict[str, Any]:
    check = made.check
    facts = {
        name: getattr(check, name)
        for name in (
            "k quasi jobs users classes classes_below jobs_below users_below users_alone jobs_alone".split()
        )
    }
    return {
        "trace": trace,
        "out": None if out is None else str(out),
        "jobs": len(made.jobs),
        "suppressed": made.suppressed,
        "columns": made.plan.words(),
        "meta": dict(made.plan.meta),
        "check": {**facts, "counted_in": check.counted_in},
        "smallest": [vars(small) for small in check.smallest],
        "remedies": [vars(remedy) for remedy in made.remedies],
    }
