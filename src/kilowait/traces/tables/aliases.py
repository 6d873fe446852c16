"""Known column names (aliases), detection of the table's origin, and status codes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from kilowait.jobs.columns import COLUMNS
from kilowait.traces.cell_parser import split_line

__all__ = [
    "ALIASES",
    "DELIMITERS",
    "KNOWN",
    "SLURM_CODES",
    "STATUS_WORDS",
    "MAPPABLE_COLUMNS",
    "csv_delimiter",
    "is_table",
    "normalized_name",
    "table_origin",
]

DELIMITERS = (",", ";", "\t", "|")
MAPPABLE_COLUMNS = (*COLUMNS, "start_s", "end_s")

ALIASES: dict[str, Sequence[str]] = {
    "job_id": ("cobaltjobid", "jobid", "idjob", "jobidraw", "job", "jobnumber", "id"),
    "submit_s": (
        "submit queuedtimestamp submittime submittimestamp timesubmit submissiontime submitted arrivaltime qtime"
    ).split(),
    "start_s": ("start", "starttimestamp", "starttime", "timestart"),
    "end_s": ("end", "endtimestamp", "endtime", "timeend", "finishtime"),
    "runtime_s": ("runtimeseconds", "runtime", "duration", "elapsed", "elapsedtime", "elapsedraw"),
    "estimate_s": (
        "walltimeseconds wallclockreq walltime requestedtime reqtime requestedwalltime walltimelimits timelimit"
    ).split(),
    "nodes": (
        "nodesused usednodes nodesalloc allocnodes nodenum numnodes nnodes nodesreq nodesrequested requestednodes "
        "nodecount"
    ).split(),
    "cores": (
        "coresused usedcores cpunum ncpus alloccpus cpusalloc processorsreq coresrequested requestedcores cpusreq cpus"
    ).split(),
    "gpus": ("gpunum", "numgpus", "gpusreq", "ngpus"),
    "user": ("userid", "username", "usernamegenid", "cobaltusernamegenid", "iduser"),
    "account": ("project", "projectnamegenid", "cobaltprojectnamegenid", "projectid", "group", "groupid"),
    "queue": ("queuename", "queuegenid", "partition"),
    "name": ("jobname",),
    "node_list": ("nodelist",),
    "status": ("newstatus", "exitstatus", "exitcode", "state", "jobstate"),
    "wait_s": ("waittime", "wait"),
}
"""Aliases of each column, normalized by `normalized_name`, preferred first; kilowait's own names take precedence."""

_WORDS = {1: "COMPLETED PASS PASSED OK SUCCESS SUCCEEDED DONE FINISHED CD COMPLETE"}
_WORDS |= {5: "CANCELLED CANCELED KILLED CA DELETED ABORTED"}
_WORDS |= {0: "FAILED FAIL TIMEOUT NODE_FAIL OUT_OF_MEMORY PREEMPTED BOOT_FAIL DEADLINE REQUEUED F TO NF OOM PR BF DL"}
STATUS_WORDS = {word: float(code) for code, words in _WORDS.items() for word in words.split()}
SLURM_CODES = {3: 1.0, 4: 5.0, 5: 0.0, 6: 0.0, 7: 0.0, 8: 0.0, 9: 0.0, 10: 0.0, 11: 0.0}
"""State codes of Slurm's database to status."""


def normalized_name(name: str) -> str:
    """Normalize a column name: lower case, letters and digits only."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


KNOWN = frozenset(normalized_name(name) for name in MAPPABLE_COLUMNS).union(*ALIASES.values())
"""Known names and aliases of columns, normalized."""


def csv_delimiter(line: str) -> str | None:
    """The delimiter of a header line with known job columns, else None.

    >>> csv_delimiter("job_id;submit_time;run_time;nodes"), csv_delimiter("to be, or not")
    (';', None)
    """
    counts = {mark: sum(normalized_name(name) in KNOWN for name in split_line(line, mark)) for mark in DELIMITERS}
    best = max(DELIMITERS, key=lambda mark: counts[mark])
    return best if counts[best] >= 2 else None


def is_table(lines: list[str]) -> bool:
    """Whether all lines have the same number of fields, at least three: a table, possibly with unknown names.

    >>> is_table(["a,b,c", "1,2,3"]), is_table(["one, two", "words"])
    (True, False)
    """
    widths = ({len(split_line(line, mark)) for line in lines} for mark in DELIMITERS)
    return len(lines) > 1 and any(len(found) == 1 and min(found) > 2 for found in widths)


def table_origin(columns: Iterable[str]) -> str:
    """Origin of a table by its column names: alcf, nrel, slurmdb or csv."""
    names = {normalized_name(name) for name in columns}
    if {"queuedtimestamp", "walltimeseconds"} <= names or {"walltime", "nodenum", "newstatus"} <= names:
        return "alcf"
    if {"wallclockreq", "nodesreq"} <= names:
        return "nrel"
    return "slurmdb" if {"idjob", "timesubmit"} <= names else "csv"
