"""``kilowait synth score``: how like generated jobs are to real ones, on the terminal and as a folder for a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kilowait.cli import console, options

if TYPE_CHECKING:
    from kilowait.experiments.synthetic_score import SyntheticScore

__all__ = ["EPILOG", "score"]

EPILOG = """\b
Examples:
  kilowait synth score log.swf.gz made.swf.gz
  kilowait synth score log.swf.gz made.swf.gz --held-out other_weeks.swf.gz --json
  kilowait synth score log.swf.gz made.swf.gz --out runs/likeness; kilowait report runs/likeness"""
SHOWN_PAIRS = 5
"""Correlations shown, those that are farthest off; --json has them all."""
GIVEN_AWAY = {
    "copies": "copies",
    "copied_pairs": "copied pairs",
    "nearer_to_seen": "nearness to seen jobs",
    "membership_advantage": "membership",
}
"""Measures that may show that jobs were copied, in words."""


def score(
    context: typer.Context,
    real: Annotated[str, typer.Argument(metavar="REAL", help="The log the generator was fitted to.")],
    made: Annotated[str, typer.Argument(metavar="SYNTHETIC", help="Generated jobs.")],
    held_out: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Real jobs the generator has not seen, for measures of privacy."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="DIR", help="Write a folder that kilowait report draws."),
    ] = None,
    policies: Annotated[
        str, typer.Option(metavar="P,...", help="Rules to simulate both under, with EASY backfilling.")
    ] = "fcfs,sjf",
    cluster: options.Cluster = "auto",
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Of the classifier.")] = 0,
    jobs: options.Rows = None,
    json: options.Json = False,
    force: options.Force = False,
) -> None:
    """Say how like generated jobs are to real ones: columns, correlations, a classifier, arrivals, users, waits.

    With real jobs that the generator has not seen also what it gives away of those it has seen. With --out everything
    is kept for a page, without the jobs themselves.
    """
    from kilowait.cluster.toml import to_dict
    from kilowait.evaluation.storage import check_writable
    from kilowait.experiments.inputs import cluster_of, workload_of
    from kilowait.experiments.synthetic_score import save_score
    from kilowait.experiments.synthetic_score import score as scored

    if out is not None:
        check_writable(out, force=force)
    rules = [name.strip() for name in policies.split(",")]
    with console.status() as tell:
        tell("reading ...")
        read = [
            workload_of(trace, rows=jobs if place == 0 else None)
            for place, trace in enumerate([real, made, *([held_out] if held_out else [])])
        ]
        machine, guessed = cluster_of(cluster, read[0].jobs)
        found = scored(
            read[0].jobs,
            read[1].jobs,
            held_out=read[2].jobs if held_out else None,
            cluster=cluster,
            policies=rules,
            seed=seed,
            told=lambda what, share: tell(f"{what} ..."),
        )
    if guessed is not None:
        console.note(guessed)
    names = {"real": real, "synthetic": made, "held_out": held_out}
    if out is not None:
        scenario: dict[str, Any] = {**names, "jobs": jobs, "policies": rules, "backfill": "easy"}
        scenario |= {"on_oversized": "drop", "seed": seed, "cluster": to_dict(machine)}
        manifest = read[0].provenance(real, console.command(context), console.today())
        manifest["seeds"] = {"classifier": seed}
        given = [name for name in names.values() if name is not None]
        manifest["inputs"] = {name: one.sha256 for name, one in zip(given, read, strict=True)}
        save_score(out, found, scenario=scenario, manifest=manifest, force=force)
    if json:
        console.json_document({**names, **found.document(), "out": out})
        return
    _show(real, made, found)
    if out is not None:
        print(f"\nwritten to {out}; kilowait report {out} makes a page of it")


# -- what is printed -----------------------------------------------------------------------------


def _show(real: str, made: str, found: SyntheticScore) -> None:
    alike = found.fidelity
    console.title(f"{made} against {real}")
    console.facts(
        [
            ("jobs", f"{found.jobs[0]:,} real, {found.jobs[1]:,} generated"),
            ("offered load", f"{found.loads[0]:.3f} real, {found.loads[1]:.3f} generated"),
            (
                "told apart",
                f"AUC {alike.auc:.3f}; with the user's history {alike.auc_history:.3f} (0.5: not at all)",
            ),
            ("same hours", _calendar(found.calendar)),
        ]
    )
    print()
    console.table(
        ["column", "KS", "moved by", "of a standard deviation"],
        [
            [one.column, f"{one.ks:.3f}", console.number(one.wasserstein), f"{one.wasserstein_share:.3f}"]
            for one in alike.distances
        ],
    )
    print()
    far = sorted(alike.pairs, key=lambda pair: -abs(pair.difference))[:SHOWN_PAIRS]
    console.table(
        ["correlations farthest off", "kind", "real", "generated", "difference"],
        [
            [
                f"{pair.one}, {pair.other}",
                pair.kind,
                f"{pair.real:.3f}",
                f"{pair.made:.3f}",
                f"{pair.difference:+.3f}",
            ]
            for pair in far
        ],
        left=2,
    )
    print()
    both = {**alike.arrivals, **alike.users}
    console.table(
        ["arrivals and users", "real", "generated"],
        [
            [name.replace("_", " "), console.number(one), console.number(other)]
            for name, (one, other) in both.items()
        ],
    )
    print()
    waits = [(outcome.policy, outcome.measure("wait_s")) for outcome in found.outcomes]
    console.table(
        ["mean wait under", "real", "generated", "ratio", "KS"],
        [
            [
                f"{policy}, easy",
                console.span(one.real),
                console.span(one.made),
                f"{one.ratio:.3f}",
                f"{one.ks:.3f}",
            ]
            for policy, one in waits
            if one is not None
        ],
    )
    print()
    _show_privacy(found)


def _calendar(same: float | None) -> str:
    if same is None:
        return "not known: the two have less than a week in common"
    return (
        f"{same:.3f}, correlation of submissions hour by hour (0: a calendar of its own, 1: the real log's)"
    )


def _show_privacy(found: SyntheticScore) -> None:
    if found.anonymity is None:
        console.note(
            "no figures of users, and no k-anonymity: one of the two does not say whose jobs they are"
        )
    else:
        known = found.anonymity[0]
        alone = f"jobs alike in {', '.join(known.known)} with those of fewer than {known.k} users"
        rows = [[alone, *(console.percent(one.jobs_below) for one in found.anonymity)]]
        console.table(["privacy", "real", "generated"], rows)
        print()
    if found.leaks is None:
        console.note(
            "whether jobs were copied is told only beside real jobs the generator has not seen: --held-out FILE"
        )
        return
    gave = found.leaks
    console.table(
        ["what is given away", "generated", "held out, or by chance"],
        [
            [
                "copies of seen jobs, time apart",
                console.percent(gave.copies),
                console.percent(gave.copies_of_held_out),
            ],
            [
                "with the user's job before",
                console.percent(gave.copied_pairs),
                console.percent(gave.copied_pairs_of_held_out),
            ],
            ["nearer to a seen than to a held-out job", console.percent(gave.nearer_to_seen), "50.0 %"],
            [
                "distance to the closest, seen and held out",
                f"{gave.closest_seen:.3f}",
                f"{gave.closest_held_out:.3f}",
            ],
            ["who was seen, guessed: AUC", f"{gave.membership_auc:.3f}", "0.500"],
            ["who was seen, guessed: advantage", console.percent(gave.membership_advantage), "0.0 %"],
        ],
    )
    said = ", ".join(GIVEN_AWAY[name] for name in gave.given_away)
    print(
        f"\nmore is given away than weeks of a log differ by: {said}"
        if said
        else "\nno more is given away than weeks of a log differ by"
    )
