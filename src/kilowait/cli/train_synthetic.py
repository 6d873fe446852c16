"""Generated jobs to train on, as ``kilowait train --synthetic`` takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kilowait.cli import console

if TYPE_CHECKING:
    from kilowait.cluster import Cluster
    from kilowait.experiments.inputs import Workload
    from kilowait.experiments.scenario import Scenario
    from kilowait.experiments.synthetic_training import GeneratedJobs

__all__ = ["Curriculum", "Folders", "Jobs", "Share", "generated_jobs", "kept_with", "refuse_generated"]

Folders = Annotated[
    str | None,
    typer.Option(
        "--synthetic",
        metavar="DIR,...",
        help="Train on jobs of these generators too, as kilowait synth fit writes them; choosing and judging stay on "
        "real jobs.",
        show_default=False,
    ),
]
Share = Annotated[
    float | None,
    typer.Option(
        "--synthetic-share",
        metavar="F",
        help="With --synthetic: the share of the training's windows or episodes that have generated jobs, 0.5 unless "
        "said; 1: synthetic only.",
        show_default=False,
    ),
]
Curriculum = Annotated[
    str | None,
    typer.Option(
        "--synthetic-curriculum",
        metavar="C",
        help="With --synthetic: mixed (the usual), or synthetic-first: generated jobs alone in the first part of the "
        "training, as long as their share.",
        show_default=False,
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--synthetic-jobs",
        metavar="N",
        min=1,
        help="With --synthetic: jobs drawn from each generator; else as many as the training jobs.",
        show_default=False,
    ),
]


def generated_jobs(
    context: typer.Context, scenario: Scenario, workload: Workload, machine: Cluster, seed: int
) -> GeneratedJobs | None:
    """The generated jobs of the options, with words where a generator has seen later jobs; None: none are asked for."""
    from kilowait.experiments.inputs import workload_of
    from kilowait.experiments.synthetic_training import SyntheticTraining, check_mixed, drawn_for

    asked = SyntheticTraining.asked(*_asked(context))
    if asked is None:
        return None
    check_mixed(machine, powered=scenario.power is not None, predicted=scenario.predict is not None)
    logged = None
    if scenario.load is not None:
        logged = workload_of(
            scenario.trace, format=scenario.format, columns=scenario.columns, strict=scenario.strict,
            rows=scenario.jobs,
        ).jobs  # fmt: skip
    with console.busy(f"drawing jobs from {', '.join(asked.folders)} ..."):
        drawn = drawn_for(
            asked, workload, machine, seed=seed, trace=scenario.trace, load=scenario.load, as_logged=logged
        )
    for text in drawn.warnings:
        console.info(f"warning: {text}")
    return drawn


def refuse_generated(context: typer.Context, what: str) -> None:
    """An error where the options ask for generated jobs and this training takes none."""
    from kilowait.errors import InputError
    from kilowait.experiments.synthetic_training import SyntheticTraining

    if SyntheticTraining.asked(*_asked(context)) is not None:
        raise InputError(f"--synthetic is for queues of whole nodes, not for {what}; leave it out")


def kept_with(drawn: GeneratedJobs | None) -> dict[str, Any]:
    """What a manifest says of generated jobs."""
    return {} if drawn is None else {"synthetic": drawn.record}


def _asked(context: typer.Context) -> tuple[Any, ...]:
    names = ("synthetic", "synthetic_share", "synthetic_curriculum", "synthetic_jobs")
    return tuple(context.params[name] for name in names)
