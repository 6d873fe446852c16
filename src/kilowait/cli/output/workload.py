"""Output of ``kilowait traces describe``, ``kilowait traces anonymize`` and ``kilowait synth score``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kilowait.cli import console

if TYPE_CHECKING:
    from kilowait.experiments.synthetic_score import SyntheticScore
    from kilowait.traces import CleaningReport
    from kilowait.traces.anonymize import AnonymityCheck, AnonymizedLog, SuggestedRule

NAMES_SHOWN = 12
"""Maximum number of kept names that are shown for inspection."""
SHOWN_PAIRS = 5
"""Number of correlations shown, those with the largest difference; --json has all of them."""
LEAKS = {
    "copies": "copies",
    "copied_pairs": "copied pairs",
    "nearer_to_seen": "closeness to training jobs",
    "membership_advantage": "membership inference",
}
"""Privacy measures that can show copied jobs, and their names."""
_RATIO = "{:.3f}".format
_STATUS = {-1: "unknown", 0: "failed", 1: "ok", 5: "cancelled"}


def show_description(trace: str, facts: dict[str, Any], report: CleaningReport | None) -> None:
    """Print the result of `kilowait.traces.describe` and the cleaning report."""
    console.title(trace)
    format = facts["format"] or "synthetic"
    rows = [("format", format if report is None else f"{format}: {report.format_reason}")]
    unit = facts["unit"]
    rows.append(("cluster", _machine_text(facts) if facts["jobs"] else "not stated"))
    rows.append(("jobs", f"{facts['jobs']:,}"))
    if facts["jobs"]:
        rows += _of_jobs(facts)
    console.facts(rows)
    if facts["jobs"]:
        print()
        header = ["", "mean", "smallest", "25 % below", "median", "75 % below", "95 % below", "99 % below", "largest"]
        marks = ("mean", "min", "p25", "median", "p75", "p95", "p99", "max")
        measures = {
            f"{unit}s": ("size", console.number),
            "run time": ("runtime_s", console.span),
            "estimate": ("estimate_s", console.span),
            "wait in the log": ("wait_s", console.span),
        }
        table = [
            [name, *(format_value(facts[key][mark]) for mark in marks)]
            for name, (key, format_value) in measures.items()
            if facts[key]
        ]
        console.table(header, table)
        for text in facts["findings"]:
            console.note(text)
    if report is not None:
        print()
        for place, line in enumerate(report.lines()):
            print(line if place == 0 else f"  {line}")


def _machine_text(facts: dict[str, Any]) -> str:
    """The size of the machine, and where it comes from."""
    source = facts["machine_source"]
    if facts["machine"] is None:
        return console.count(facts["machine_size"], facts["unit"]) if facts["machine_size"] else "not stated"
    return str(facts["machine"]) + {
        "peak": ", the largest number in use at one time; the log does not state the size",
        "largest": ", as many as the largest job has; the log does not state the size",
        "header": ", as the log states",
    }.get(source, "")


def _of_jobs(facts: dict[str, Any]) -> list[tuple[str, str]]:
    unit = facts["unit"]
    rows = [("submitted over", console.span(facts["span_s"]))]
    if facts["peak_use"] is not None:
        rows.append(("recorded use", f"at most {console.count(facts['peak_use'], unit)} at one time"))
    rows.append(("work", f"{console.number(facts[f'{unit}_seconds'] / 3600)} {unit}-hours"))
    if facts["offered_load"] is not None:
        rows.append(("offered load", f"{facts['offered_load']:.3f} of the cluster"))
    if facts["larger_than_machine"]:
        rows.append(("too large", f"{console.count(facts['larger_than_machine'], 'job')} larger than the cluster"))
    people = [console.count(facts[key], key[:-1]) for key in ("users", "accounts", "queues") if facts[key]]
    if people:
        rows.append(("used by", ", ".join(people)))
    if set(facts.get("status", {-1})) != {-1}:
        known = ", ".join(f"{n:,} {_STATUS.get(code, f'status {code}')}" for code, n in facts["status"].items())
        rows.append(("ended", known))
    exact, over = facts["perfect_estimates"], facts["overrun_estimates"]
    rows.append(("estimates", f"{console.percent(exact)} are exact, {console.percent(over)} too short"))
    if facts["zero_runtimes"]:
        rows.append(("zero run time", f"{console.count(facts['zero_runtimes'], 'job')} ran for 0 s"))
    return rows


# -- anonymization -----------------------------------------------------------------------------------


def show_anonymized(trace: str, result: AnonymizedLog) -> None:
    """Print what is published of every column, and the k-anonymity check."""
    _show_plan(trace, result)
    _show_check(result)


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


def anonymized_document(trace: str, result: AnonymizedLog, out: Path | None) -> dict[str, Any]:
    """The check and the changes as plain data."""
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


# -- synthetic workloads -----------------------------------------------------------------------------


def show_score(real: str, synthetic: str, score: SyntheticScore) -> None:
    """Print fidelity, simulated waits and privacy."""
    fidelity = score.fidelity
    console.title(f"{synthetic} compared with {real}")
    console.facts(
        [
            ("jobs", f"{score.jobs[0]:,} real, {score.jobs[1]:,} synthetic"),
            ("offered load", f"{score.loads[0]:.3f} real, {score.loads[1]:.3f} synthetic"),
            (
                "classifier",
                f"AUC {fidelity.auc:.3f}; with the user's history {fidelity.auc_history:.3f} "
                "(0.5: cannot distinguish them)",
            ),
            ("daily pattern", _calendar(score.calendar)),
        ]
    )
    print()
    distances: console.Columns = [
        ("column", "column", str),
        ("KS", "ks", _RATIO),
        ("Wasserstein", "wasserstein", console.number),
        ("in standard deviations", "wasserstein_share", _RATIO),
    ]
    console.records(distances, fidelity.distances)
    print()
    far = sorted(fidelity.pairs, key=lambda pair: -abs(pair.difference))[:SHOWN_PAIRS]
    pairs = [
        [f"{one.one}, {one.other}", one.kind, _RATIO(one.real), _RATIO(one.synthetic), f"{one.difference:+.3f}"]
        for one in far
    ]
    console.table(["largest correlation differences", "kind", "real", "synthetic", "difference"], pairs, left=2)
    print()
    both = {**fidelity.arrivals, **fidelity.users}
    console.table(
        ["arrivals and users", "real", "synthetic"],
        [
            [name.replace("_", " "), console.number(workload), console.number(other)]
            for name, (workload, other) in both.items()
        ],
    )
    print()
    waits = [(outcome.policy, outcome.measure("wait_s")) for outcome in score.outcomes]
    console.table(
        ["mean wait under", "real", "synthetic", "ratio", "KS"],
        [
            [
                f"{policy}, easy",
                console.span(workload.real),
                console.span(workload.synthetic),
                f"{workload.ratio:.3f}",
                f"{workload.ks:.3f}",
            ]
            for policy, workload in waits
            if workload is not None
        ],
    )
    print()
    _show_privacy(score)


def _calendar(same: float | None) -> str:
    if same is None:
        return "not known: the two logs overlap by less than a week"
    return f"{same:.3f}, correlation of the hourly submissions (0: unrelated to the real log, 1: identical)"


def _show_privacy(score: SyntheticScore) -> None:
    if score.anonymity is None:
        console.note("no user metrics and no k-anonymity: one of the two logs has no users")
    else:
        known = score.anonymity[0]
        below = f"jobs whose {', '.join(known.known)} are shared by fewer than {known.k} users"
        rows = [[below, *(console.percent(workload.jobs_below) for workload in score.anonymity)]]
        console.table(["privacy", "real", "synthetic"], rows)
        print()
    if score.privacy is None:
        console.note(
            "whether jobs were copied can only be measured with real jobs that the generator has not seen: "
            "--held-out-log FILE"
        )
        return
    leaks = score.privacy
    console.table(
        ["leakage", "synthetic", "held out, or by chance"],
        [
            [
                "copies of training jobs, except for the time",
                console.percent(leaks.copies),
                console.percent(leaks.copies_of_held_out),
            ],
            [
                "the same with the user's previous job",
                console.percent(leaks.copied_pairs),
                console.percent(leaks.copied_pairs_of_held_out),
            ],
            ["closer to a training job than to a held-out job", console.percent(leaks.nearer_to_seen), "50.0 %"],
            [
                "distance to the closest training and held-out job",
                f"{leaks.closest_seen:.3f}",
                f"{leaks.closest_held_out:.3f}",
            ],
            ["membership inference: AUC", f"{leaks.membership_auc:.3f}", "0.500"],
            ["membership inference: advantage", console.percent(leaks.membership_advantage), "0.0 %"],
        ],
    )
    measures = ", ".join(LEAKS[name] for name in leaks.exceeded)
    print(
        f"\nmore leakage than between weeks of one log: {measures}"
        if measures
        else "\nno more leakage than between weeks of one log"
    )
