"""Baseline of the privacy metrics: differences between weeks of a real log, without any copying.

The weeks of a log are distributed round-robin to three groups. One plays the generated jobs, one the training jobs and
one the held-out jobs, in all three rotations. The resulting values are no leaks, so the threshold for a leak
(`kilowait.synth.privacy_metrics.SLACK`) must be above them.

    python -m benchmarks.reproduce.privacy_baseline --data DIR
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks.reproduce.data_paths import Sources
from benchmarks.reproduce.text_tables import table
from kilowait.errors import KilowaitError
from kilowait.jobs import JobTable
from kilowait.synth.log_schema import WEEK_S, unix_zero_s
from kilowait.synth.privacy_metrics import TOLERANCE, privacy_metrics

__all__ = ["apart", "every_third_week"]

LOGS = {
    "SDSC-SP2": "SDSC-SP2-1998-4.2-cln.swf.gz",
    "HPC2N": "HPC2N-2002-2.2-cln.swf.gz",
    "SDSC-BLUE": "SDSC-BLUE-2000-4.2-cln.swf.gz",
    "LLNL-Thunder": "LLNL-Thunder-2007-1.1-cln.swf.gz",
    "UniLu-Gaia": "UniLu-Gaia-2014-1.swf.gz",
}


def every_third_week(jobs: JobTable) -> list[JobTable]:
    """Split the jobs into three groups of weeks.

    >>> weekly = JobTable(
    ...     job_id=[1, 2, 3, 4],
    ...     submit_s=[day * 86400 for day in (0, 8, 15, 22)],
    ...     runtime_s=[1] * 4,
    ...     nodes=[1] * 4,
    ... )
    >>> [heap["job_id"].tolist() for heap in every_third_week(weekly)]
    [[1, 4], [2], [3]]
    """
    week = (jobs["submit_s"] + unix_zero_s(jobs)) // WEEK_S % 3
    return [jobs[week == heap] for heap in range(3)]


def apart(jobs: JobTable) -> dict[str, float]:
    """The maximum excess of each metric over its expected value, over the three rotations."""
    heaps = every_third_week(jobs)
    turns = [privacy_metrics(*heaps[turn:], *heaps[:turn]) for turn in range(3)]
    return {
        "copies": max(one.copies - one.copies_of_held_out for one in turns),
        "copied pairs": max(one.copied_pairs - one.copied_pairs_of_held_out for one in turns),
        "nearer to seen": max(one.nearer_to_seen - 0.5 for one in turns),
        "advantage": max(one.membership_advantage for one in turns),
    }


def main(words: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.reproduce.privacy_baseline", description=__doc__
    )
    parser.add_argument("--data", metavar="DIR")
    parser.add_argument("--logs", nargs="+", choices=LOGS, default=list(LOGS))
    given = parser.parse_args(words)
    try:
        sources = Sources.find(given.data)
        found = {name: (jobs := sources.jobs(LOGS[name]), apart(jobs)) for name in given.logs}
    except KilowaitError as problem:
        sys.stderr.write(f"error: {problem}\n")
        return 2
    rows = [
        [name, f"{(jobs['submit_s'].max() - jobs['submit_s'].min()) / WEEK_S:.0f}"]
        + [f"{value:.3f}" for value in measures.values()]
        for name, (jobs, measures) in found.items()
    ]
    heads = ["", "weeks", *next(iter(found.values()))[1]]
    sys.stdout.write(f"{table(heads, rows)}\n\nvalues above {TOLERANCE} are reported as leaks\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
