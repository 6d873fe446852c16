"""``kilowait compare``: several rules, one log."""

from __future__ import annotations

from typing import Annotated

import typer

from kilowait.cli import options, show

app = typer.Typer(add_completion=False, **show.PLAIN)

_EPILOG = """\b
Examples:
  kilowait compare lublin:5000:128:0.9:7
  kilowait compare KTH-SP2-1996-2.1-cln.swf.gz --policies fcfs,sjf,saf,wfp3 --backfill easy,none --sort mean_bsld
  kilowait compare log.swf --policies fcfs,multifactor:age=500:size=0,agent:runs/x/agent.json --json"""


@app.command(epilog=_EPILOG)
def compare(
    context: typer.Context,
    trace: options.Trace,
    policies: Annotated[
        str,
        typer.Option("--policies", "-p", metavar="P,...", help="Rules, with commas between; or agent:PATH."),
    ] = "fcfs,sjf,saf,wfp3",
    backfill: Annotated[
        str,
        typer.Option(
            "--backfill", "-b", metavar="B,...", help="none, easy, conservative or numbers of reservations."
        ),
    ] = "none,easy",
    cluster: options.Cluster = "auto",
    backfill_order: Annotated[
        str | None, typer.Option(metavar="P", help="An own order for those who overtake, e.g. sjf.")
    ] = None,
    walltime: options.Walltime = "extend",
    passes: options.Passes = "instant",
    placement: options.Placement = "first",
    oversized: options.Oversized = "error",
    ignore_dependencies: options.Dependencies = False,
    load: options.Load = None,
    jobs: options.Rows = None,
    columns: options.Columns = None,
    format: options.Format = None,
    strict: options.Strict = False,
    sort: Annotated[
        str | None,
        typer.Option(metavar="METRIC", help="Best first by this, e.g. mean_wait_s; else as given."),
    ] = None,
    json: options.Json = False,
    out: options.Out = None,
    force: options.Force = False,
) -> None:
    """Replay a job log under several rules and print them side by side.

    Every rule meets the same jobs on the same machine; the best value of each column is marked.
    """
    from kilowait.errors import UnknownNameError
    from kilowait.experiments import compare as comparing
    from kilowait.experiments.runfolder import check_free
    from kilowait.experiments.scenario import Scenario, described, prepared

    if sort is not None and sort not in comparing.JUDGED:
        raise UnknownNameError("metric to sort by", sort, comparing.JUDGED)
    if out is not None:
        check_free(out, force=force)
    pairs = comparing.pairs_of(policies, backfill)
    scenario = Scenario(
        trace=trace,
        cluster=cluster,
        backfill_order=backfill_order,
        walltime=walltime,
        passes=passes,
        placement=placement,
        oversized=oversized,
        dependencies=not ignore_dependencies,
        load=load,
        jobs=jobs,
        format=format,
        columns=columns,
        strict=strict,
    )
    with show.busy(f"reading {trace} ..."):
        workload, machine, notes = prepared(scenario)
    with show.progress(len(pairs)) as bar:
        seen = 0

        def before(policy: str, depth: str | int) -> None:
            nonlocal seen
            if bar is not None:
                bar.update(bar.task_ids[0], description=f"{policy}, {depth}", completed=seen)
            seen += 1

        rows = comparing.compare(workload.jobs, machine, pairs, before=before, **scenario.rules)
    for text in notes:
        show.note(text)
    if sort is not None:
        rows = comparing.sorted_rows(rows, sort)
    resolved = scenario.to_dict() | {"cluster": described(machine), "policy": policies, "backfill": backfill}
    results = {"rows": [row.to_dict() for row in rows]}
    if out is not None:
        manifest = workload.provenance(trace, show.command(context), show.today())
        comparing.save_comparison(out, scenario=resolved, results=results, manifest=manifest, force=force)
    if json:
        show.json_document({"scenario": resolved, "notes": notes, **results, "out": out})
        return
    from kilowait.cli.figures import ledger_line, show_compared

    show.title(f"{trace}: {show.count(len(workload.jobs), 'job')} on {machine.nodes:,} nodes")
    read = ledger_line(workload)
    if read is not None:
        print(read)
    print()
    show_compared(rows)
    if out is not None:
        print(f"\nwritten to {out}")
