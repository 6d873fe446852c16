"""Baseline of the privacy metrics: differences between weeks of a real log, without any copying.

The weeks of a log are distributed round-robin to three groups, used as synthetic jobs, training jobs and held-out jobs
in all three rotations. The resulting values are no leaks, so the threshold for a leak
(`kilowait.synth.privacy_metrics.TOLERANCE`) must be above them.

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

__all__ = ["excess_between_weeks", "every_third_week"]

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
    ...     job_id=[1, 2, 3, 4], submit_s=[day * 86400 for day in (0, 8, 15, 22)], runtime_s=[1] * 4, nodes=[1] * 4
    ... )
    >>> [group["job_id"].tolist() for group in every_third_week(weekly)]
    [[1, 4], [2], [3]]
    """
    week = (jobs["submit_s"] + unix_zero_s(jobs)) // WEEK_S % 3
    return [jobs[week == group] for group in range(3)]


def excess_between_weeks(jobs: JobTable) -> dict[str, float]:
    """The maximum excess of each metric over its expected value, over the three rotations."""
    groups = every_third_week(jobs)
    rotations = [privacy_metrics(*groups[rotation:], *groups[:rotation]) for rotation in range(3)]
    return {
        "copies": max(
            metrics_of_rotation.copies - metrics_of_rotation.copies_of_held_out for metrics_of_rotation in rotations
        ),
        "copied pairs": max(
            metrics_of_rotation.copied_pairs - metrics_of_rotation.copied_pairs_of_held_out
            for metrics_of_rotation in rotations
        ),
        "nearer to seen": max(metrics_of_rotation.nearer_to_seen - 0.5 for metrics_of_rotation in rotations),
        "advantage": max(metrics_of_rotation.membership_advantage for metrics_of_rotation in rotations),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reproduce.privacy_baseline", description=__doc__)
    parser.add_argument("--data", metavar="DIR")
    parser.add_argument("--logs", nargs="+", choices=LOGS, default=list(LOGS))
    options = parser.parse_args(arguments)
    try:
        sources = Sources.find(options.data)
        excess = {name: (jobs := sources.jobs(LOGS[name]), excess_between_weeks(jobs)) for name in options.logs}
    except KilowaitError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    rows = [
        [name, f"{(jobs['submit_s'].max() - jobs['submit_s'].min()) / WEEK_S:.0f}"]
        + [f"{value:.3f}" for value in metrics.values()]
        for name, (jobs, metrics) in excess.items()
    ]
    heads = ["", "weeks", *next(iter(excess.values()))[1]]
    sys.stdout.write(f"{table(heads, rows)}\n\nvalues above {TOLERANCE} are reported as leaks\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
