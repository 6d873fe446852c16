"""``kilowait bench``: how fast this kilowait is on this machine."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kilowait.cli import options, show

if TYPE_CHECKING:
    from kilowait.experiments.bench import Measure

app = typer.Typer(add_completion=False, **show.PLAIN)

_EPILOG = """\b
Examples:
  kilowait bench --quick
  kilowait bench --data ../shared/data --json"""


@app.command(epilog=_EPILOG)
def bench(
    quick: Annotated[
        bool, typer.Option("--quick", help="Only what takes less than half a minute in all.")
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder of real logs, with swf/ in it; else what KILOWAIT_DATA names."
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Measure jobs per second and start-up times on one core, each beside its target.

    The workload is the Lublin-Feitelson model's, 10,000 jobs on 256 nodes; real logs are measured where they are at
    hand. The machine should have nothing else to do.
    """
    from kilowait.experiments.bench import measures

    machine = _machine()
    if not json:
        print(
            f"Python {machine['python']} on {machine['cpus']} cores, load {machine['load']:.2f} before we began\n"
        )
        print(f"{'':<48}{'measured':>12}  {'':<7}{'target':>12}")
    found = []
    left = measures(quick=quick, data=data)
    while True:
        with show.busy("measuring ..."):
            measure = next(left, None)
        if measure is None:
            break
        found.append(measure)
        if not json:
            _show(measure)
    if json:
        show.json_document({"machine": machine, "measures": [measure.to_dict() for measure in found]})
        return
    judged = [measure.met for measure in found if measure.met is not None]
    print(f"\n{sum(judged)} of {len(judged)} targets met")


def _show(measure: Measure) -> None:
    if measure.value is None:
        print(f"{measure.name:<48}{'-':>12}  {measure.note}")
        return
    verdict = target = ""
    if measure.target is not None:
        target = f"{'<=' if measure.less_is_better else '>='} {show.number(measure.target)}"
        verdict = "ok" if measure.met else "above" if measure.less_is_better else "below"
    note = f"  {measure.note}" if measure.note else ""
    line = f"{measure.name:<48}{show.number(measure.value):>12}  {measure.unit:<7}{target:>12}  {verdict:<5}{note}"
    print(line.rstrip(), flush=True)


def _machine() -> dict[str, Any]:
    load = os.getloadavg()[0]
    return {
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "cpu": platform.machine(),
        "load": load,
    }
