"""Print the agreement of kilowait with other simulators, job by job and in the mean.

KILOWAIT_DATA=/path/to/data python -m tests.oracle.agreement_report
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.oracle import recorded_starts
from tests.oracle.pyss_conservative import compressing
from tests.oracle.recorded_starts import KTH, LUBLIN, MEANS, Recorded


def row(data: Path, run: Recorded, name: str, start: recorded_starts.Floats) -> str:
    """A line of the table: starts that are equal, then each mean, ours / theirs and the difference."""
    their_start = recorded_starts.theirs(data, run)
    mine = recorded_starts.means(data, run, start)
    their_means = recorded_starts.means(data, run, their_start)
    cells = [name, run.whose, f"{int((start == their_start).sum()):,} of {len(start):,}"]
    for ours, theirs in zip(mine, their_means, strict=True):
        cells.append(f"{ours:,.1f} / {theirs:,.1f} ({100 * (ours / theirs - 1):+.3f} %)")
    return "| " + " | ".join(cells) + " |"


def first_difference(data: Path, run: Recorded, start: recorded_starts.Floats) -> str:
    """The first job with a different start time."""
    their_start = recorded_starts.theirs(data, run)
    different = np.flatnonzero(start != their_start)
    if not len(different):
        return "none"
    jobs = recorded_starts.jobs_of(data, run.log, run.perfect)
    job = different[np.argmin(np.minimum(start, their_start)[different])]
    return (
        f"{len(different):,} starts differ; first job {jobs['job_id'][job]} ({jobs['nodes'][job]} nodes, "
        f"estimate {jobs['estimate_s'][job]:g} s, submitted at {jobs['submit_s'][job]:.10g}): "
        f"ours {start[job]:.10g}, theirs {their_start[job]:.10g}"
    )


def main() -> int:
    """Exit code 0: the table was printed; 2: there are no data."""
    named = os.environ.get("KILOWAIT_DATA")
    if not named:
        print("set KILOWAIT_DATA to the folder of real traces")
        return 2
    data = Path(named)
    heads = ["run", "computed by", "equal starts", *(f"mean {name}, ours / theirs" for name in MEANS)]
    differences = []
    for title, runs in (("lublin_256, 256 nodes", LUBLIN), ("KTH-SP2, 100 nodes", KTH)):
        print(f"{title}\n\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
        for run in runs:
            start = recorded_starts.ours(data, run)
            print(row(data, run, run.run, start))
            differences.append(f"{run.log} {run.run}: {first_difference(data, run, start)}")
            if run.run in ("EASY", "EASY-SJBF", "conservative"):
                per_event = replace(run, settings={**run.settings, "schedule_per": "event"})
                start = recorded_starts.ours(data, per_event)
                print(row(data, run, f"{run.run}, a pass per event", start))
                differences.append(f"{run.log} {run.run}, a pass per event: {first_difference(data, run, start)}")
            if run.run == "conservative":
                anew = replace(run, settings={"backfill": 10**6})
                print(row(data, run, "all planned anew at every pass", recorded_starts.ours(data, anew)))
                jobs = recorded_starts.jobs_of(data, run.log, False)
                columns = [jobs[name].tolist() for name in ("submit_s", "runtime_s", "estimate_s", "nodes")]
                kept = np.array(compressing(*columns, machine=100))
                print(row(data, run, "a plain program that keeps its plan", kept))
                differences.append(
                    f"{run.log} a plain program that keeps its plan: {first_difference(data, run, kept)}"
                )
        print()
    print("\n".join(line for line in differences if not line.endswith("none")))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
