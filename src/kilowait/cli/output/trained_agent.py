"""Terminal output of trainings: progress, test results, Pareto fronts, and how to use the agent."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kilowait.cli import console
from kilowait.cli.output.run import checkpoints_text
from kilowait.evaluation.comparison.conclusions import gpu_agent_sentences, power_agent_sentences
from kilowait.evaluation.metric_definitions import AGENT_METRIC_NAMES

if TYPE_CHECKING:
    from kilowait.experiments.training.train import TrainedAgent

TRAIN_LONGER_HINT = "to train longer, repeat the command with more --generations and --resume"


def show_trained_agent(result: TrainedAgent) -> None:
    """Print the test results of a trained agent, and how to use it."""
    from kilowait.cli.output.compare import show_comparisons
    from kilowait.experiments.training.linear import PowerTrainer
    from kilowait.experiments.training.network import NetworkTrainer

    trainer, agent, evaluation, out = result.trainer, result.agent, result.evaluation, result.out
    is_network, node_level = isinstance(trainer, NetworkTrainer), result.cluster.node_level
    if result.front is not None:
        show_front(result.front)
        console.note("the comparison with policies uses equal weights")
    if trainer.power is not None:
        show_energy_evaluation(evaluation)
    elif node_level:
        show_gpu_evaluation(evaluation)
    else:
        for note in evaluation["notes"]:
            console.note(note)
        show_comparisons([evaluation], [result.workload])
    outcome = trainer.search_outcome(agent)
    if outcome is not None:
        print(f"\n{outcome}")
    objectives = trainer.settings.objectives if is_network else ()
    preference = f":prefer={objectives[0]}=0.3+{objectives[1]}=0.7" if objectives else ""
    file = out / ("agent.pt" if is_network else "agent.json")
    if isinstance(trainer, PowerTrainer) and trainer.power is not None:
        use = f"kilowait simulate --policy agent:{file} --power ... --power-controls {trainer.power.power_controls}"
    else:
        baseline = "srtf" if node_level else "saf"
        use = f"kilowait compare --policies {baseline},agent:{file}{preference}"
    print(f"\nwritten to {out}; use it with: {use}")
    if is_network:
        print(
            f"learning curves: tensorboard --logdir {result.checkpoints}; to train longer, repeat the command with "
            "more --total-timesteps and --resume"
        )
    else:
        print(TRAIN_LONGER_HINT)


def show_gpu_evaluation(evaluation: Mapping[str, Any]) -> None:
    """Print the test results on a GPU cluster, and the ratio of the agent to the best policy."""
    rows = sorted(evaluation["policies"].items(), key=lambda row: row[1]["mean_jct_s"])
    print(f"test jobs: {evaluation['windows']} windows of {evaluation['window_jobs']:,} jobs, every job counted\n")
    formats: dict[str, Callable[[float], str]]
    formats = dict.fromkeys(("mean_jct_s", "p95_jct_s", "makespan_s"), console.span)
    formats |= dict.fromkeys(("gpu_utilization", "flops_utilization"), console.percent)
    header = ["", *(console.heading(AGENT_METRIC_NAMES[metric]) for metric in formats)]
    cells = [[name, *(text(float(row[metric])) for metric, text in formats.items())] for name, row in rows]
    console.table(header, cells)
    print(f"\ncheckpoints: {checkpoints_text(evaluation['preemption_costs'])}")
    if "agent" in evaluation["ratios"]:
        print()
        for sentence in gpu_agent_sentences(evaluation["ratios"]["agent"], evaluation["windows"]):
            print(sentence)


def show_energy_evaluation(evaluation: Mapping[str, Any]) -> None:
    """Print the test results with energy, and how the agent compares with the Pareto front."""
    objective, policies = evaluation["objective"], evaluation["policies"]
    print(f"test jobs: {evaluation['windows']} windows of {evaluation['window_jobs']:,} jobs, every job counted\n")
    extra = [name for name in ("co2", "cost") if name in policies["agent"]]
    metrics = ("energy", *extra, "slowdown", "wait_s", "p95_wait_s")
    heads = [console.heading(AGENT_METRIC_NAMES[metric]) for metric in metrics]
    order = sorted(
        {"agent", *evaluation["front"], *(name for name in policies if name.endswith(", none"))},
        key=lambda name: policies[name][objective],
    )
    rows = []
    for name in order:
        row = policies[name]
        cells = [console.number(row[figure]) for figure in ("energy", *extra)]
        cells += [f"{row['slowdown']:.3f}", console.span(row["wait_s"]), console.span(row["p95_wait_s"])]
        rows.append([name, *cells, "front" if name in evaluation["front"] else ""])
    console.table(["", *heads, ""], rows)
    print()
    for sentence in power_agent_sentences(evaluation["margin"], objective, len(policies) - 1, evaluation["windows"]):
        print(sentence)


def show_front(front: Mapping[str, Any]) -> None:
    """Print the table of a Pareto front."""
    terms = list(front["terms"])
    print(f"test jobs: {front['windows']} windows of {front['window_jobs']:,} jobs; means and 95 % intervals\n")
    print("".join(f"{'weight ' + name:>20}" for name in terms) + "".join(f"{name:>30}" for name in terms))
    for point in front["points"]:
        weights = "".join(f"{point['preference'][name]:>20.2f}" for name in terms)
        print(weights + "".join(f"{_cell(point, name):>30}" for name in terms) + _remark(point))
    rule = "".join(f"{_cell(front['reference'], name):>30}" for name in terms)
    print(f"{front['reference']['name']:<{20 * len(terms)}}{rule}\n")
    for name, meaning in front["terms"].items():
        print(f"{name}: {meaning}; unit {front['units'][name]:.4g}")


def _cell(row: Mapping[str, Any], name: str) -> str:
    low, high = row.get("intervals", {}).get(name, (float("nan"),) * 2)
    spread = "" if math.isnan(low) else f" ({low:.4g} to {high:.4g})"
    return f"{row['metrics'][name]:.4g}{spread}"


def _remark(point: Mapping[str, Any]) -> str:
    return "  dominated" if point["dominated"] else ""
