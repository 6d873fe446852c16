"""Options and jobs of ``kilowait train --synthetic``: synthetic jobs mixed into the training data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kilowait.cli import console

if TYPE_CHECKING:
    from kilowait.cluster import Cluster
    from kilowait.experiments.scenario import Scenario
    from kilowait.experiments.scenario_inputs import Workload
    from kilowait.experiments.synthetic_training import SyntheticJobs

__all__ = [
    "CurriculumOption",
    "GeneratorFoldersOption",
    "SyntheticJobsOption",
    "SyntheticShareOption",
    "generated_jobs",
    "refuse_generated",
    "synthetic_record",
]

GeneratorFoldersOption = Annotated[
    str | None,
    typer.Option(
        "--synthetic",
        metavar="DIR,...",
        help="Also train on jobs of these generators (folders written by kilowait synth fit); validation and test use "
        "real jobs.",
        show_default=False,
    ),
]
SyntheticShareOption = Annotated[
    float | None,
    typer.Option(
        "--synthetic-share",
        metavar="FRACTION",
        help="With --synthetic: share of the training windows or episodes that contain synthetic jobs; by default 0.5; "
        "1: synthetic only.",
        show_default=False,
    ),
]
CurriculumOption = Annotated[
    str | None,
    typer.Option(
        "--synthetic-curriculum",
        metavar="ORDER",
        help="With --synthetic: mixed (the default), or synthetic-first: only synthetic jobs in the first part of the "
        "training, as long as their share.",
        show_default=False,
    ),
]
SyntheticJobsOption = Annotated[
    int | None,
    typer.Option(
        "--synthetic-jobs",
        metavar="N",
        min=1,
        help="With --synthetic: jobs sampled from each generator; by default as many as the training jobs.",
        show_default=False,
    ),
]


def generated_jobs(
    context: typer.Context, scenario: Scenario, workload: Workload, machine: Cluster, seed: int
) -> SyntheticJobs | None:
    """The synthetic jobs of the options, or None; prints a warning if a generator has seen test jobs."""
    from kilowait.experiments.scenario_inputs import read_workload
    from kilowait.experiments.synthetic_training import SyntheticTraining, check_synthetic_supported, sample_synthetic

    settings = SyntheticTraining.from_options(*_synthetic_options(context))
    if settings is None:
        return None
    check_synthetic_supported(
        machine, has_power=scenario.power is not None, has_predictions=scenario.runtime_predictor is not None
    )
    logged = None
    if scenario.load is not None:
        logged = read_workload(
            scenario.trace, format=scenario.format, unpack_limit=scenario.unpack_limit, columns=scenario.columns,
            strict=scenario.strict,
            rows=scenario.jobs,
        ).jobs  # fmt: skip
    with console.busy(f"sampling jobs from {', '.join(settings.folders)} ..."):
        generated = sample_synthetic(
            settings, workload, machine, seed=seed, trace=scenario.trace, load=scenario.load, as_logged=logged
        )
    for warning in generated.warnings:
        console.info(f"warning: {warning}")
    return generated


def refuse_generated(context: typer.Context, cluster_kind: str) -> None:
    """Raise if --synthetic is given to a training that does not support it."""
    from kilowait.errors import InputError
    from kilowait.experiments.synthetic_training import SyntheticTraining

    if SyntheticTraining.from_options(*_synthetic_options(context)) is not None:
        raise InputError(f"--synthetic is for batch clusters (whole nodes), not for {cluster_kind}; leave it out")


def synthetic_record(generated: SyntheticJobs | None) -> dict[str, Any]:
    """The manifest entry for the synthetic jobs."""
    return {} if generated is None else {"synthetic": generated.record}


def _synthetic_options(context: typer.Context) -> tuple[Any, ...]:
    names = ("synthetic", "synthetic_share", "synthetic_curriculum", "synthetic_jobs")
    return tuple(context.params[name] for name in names)
