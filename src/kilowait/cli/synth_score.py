"""``kilowait synth score``: fidelity and privacy of synthetic jobs, printed and written to a folder for a page."""

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
  kilowait synth score log.swf.gz synthetic.swf.gz
  kilowait synth score log.swf.gz synthetic.swf.gz --held-out-log other_weeks.swf.gz --json
  kilowait synth score log.swf.gz synthetic.swf.gz --out runs/score; kilowait report runs/score"""
SHOWN_PAIRS = 5
"""Number of correlations shown, those with the largest difference; --json has all of them."""
LEAKS = {
    "copies": "copies",
    "copied_pairs": "copied pairs",
    "nearer_to_seen": "closeness to training jobs",
    "membership_advantage": "membership inference",
}
"""Privacy measures that can show copied jobs, and their names."""


def score(
    context: typer.Context,
    real: Annotated[str, typer.Argument(metavar="REAL", help="Log that the generator was fitted to.")],
    synthetic: Annotated[str, typer.Argument(metavar="SYNTHETIC", help="Log of synthetic jobs.")],
    held_out_log: Annotated[
        str | None,
        typer.Option(
            "--held-out-log",
            metavar="FILE",
            help="Real jobs that the generator has not seen; required for privacy measures.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="DIR", help="Write a folder for kilowait report.")
    ] = None,
    policies: Annotated[
        str,
        typer.Option(
            "--policies",
            "-p",
            metavar="P,...",
            help="Comma-separated policies to simulate both logs with, under EASY backfilling.",
        ),
    ] = "fcfs,sjf",
    cluster: options.Cluster = "auto",
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Random seed of the classifier.")] = 0,
    jobs: options.Jobs = None,
    unpack_limit: options.UnpackLimit = None,
    json: options.Json = False,
    force: options.Force = False,
) -> None:
    """Compare synthetic with real jobs: distributions, correlations, a classifier, arrivals, users, simulated waits.

    With --held-out-log, also measure whether the generator leaks the jobs it was fitted to. With --out the results are
    written to a folder for kilowait report, without the jobs themselves.
    """
    from kilowait.cluster.toml import to_dict
    from kilowait.evaluation.storage import writable_folder
    from kilowait.experiments.scenario_inputs import read_workload, resolve_cluster
    from kilowait.experiments.synthetic_score import save_score
    from kilowait.experiments.synthetic_score import score_synthetic as scored

    context.with_resource(writable_folder(out, force=force))
    policy_names = [name.strip() for name in policies.split(",")]
    with console.status() as update:
        update("reading ...")
        workloads = [
            read_workload(trace, unpack_limit=unpack_limit, rows=jobs if place == 0 else None)
            for place, trace in enumerate([real, synthetic, *([held_out_log] if held_out_log else [])])
        ]
        machine, guessed = resolve_cluster(cluster, workloads[0].jobs)
        score = scored(
            workloads[0].jobs,
            workloads[1].jobs,
            held_out=workloads[2].jobs if held_out_log else None,
            cluster=cluster,
            policies=policy_names,
            seed=seed,
            progress=lambda what, share: update(f"{what} ..."),
        )
    if guessed is not None:
        console.note(guessed)
    names = {"real": real, "synthetic": synthetic, "held_out": held_out_log}
    if out is not None:
        scenario: dict[str, Any] = {**names, "jobs": jobs, "policies": policy_names, "backfill": "easy"}
        scenario |= {"on_oversized": "drop", "seed": seed, "cluster": to_dict(machine)}
        manifest = workloads[0].provenance(real, console.command(context), console.today())
        manifest["seeds"] = {"classifier": seed}
        paths = [name for name in names.values() if name is not None]
        manifest["inputs"] = {name: workload.sha256 for name, workload in zip(paths, workloads, strict=True)}
        save_score(out, score, scenario=scenario, manifest=manifest, force=force)
    if json:
        console.json_document({**names, **score.document(), "out": out})
        return
    _show(real, synthetic, score)
    if out is not None:
        print(f"\nwritten to {out}; write a page: kilowait report {out}")


# -- what is printed -----------------------------------------------------------------------------


def _show(real: str, synthetic: str, score: SyntheticScore) -> None:
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
    console.table(
        ["column", "KS", "Wasserstein", "in standard deviations"],
        [
            [
                workload.column,
                f"{workload.ks:.3f}",
                console.number(workload.wasserstein),
                f"{workload.wasserstein_share:.3f}",
            ]
            for workload in fidelity.distances
        ],
    )
    print()
    far = sorted(fidelity.pairs, key=lambda pair: -abs(pair.difference))[:SHOWN_PAIRS]
    console.table(
        ["largest correlation differences", "kind", "real", "synthetic", "difference"],
        [
            [
                f"{pair.one}, {pair.other}",
                pair.kind,
                f"{pair.real:.3f}",
                f"{pair.synthetic:.3f}",
                f"{pair.difference:+.3f}",
            ]
            for pair in far
        ],
        left=2,
    )
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
