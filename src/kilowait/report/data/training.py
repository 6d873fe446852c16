"""Data of an agent's folder: training, evaluation, Pareto front and explained decisions, as sentences and tables."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from kilowait.evaluation.comparison import PairwiseResult
from kilowait.evaluation.comparison.conclusions import (
    agent_sentences,
    gpu_agent_sentences,
    power_agent_sentences,
    starvation,
    starvation_sentences,
)
from kilowait.evaluation.metric_definitions import AGENT_METRIC_NAMES, WINDOWS_NOTE, better_of, metric_name
from kilowait.evaluation.storage.folder import null_to_nan
from kilowait.report.data.summary import starving_cell, verdict_cell
from kilowait.report.format import (
    Cell,
    Metric,
    NumberFormat,
    ReportColumn,
    ReportTable,
    capital,
    column,
    count,
    interval_text,
    number,
    share,
    table_of_columns,
)
from kilowait.units import format_duration

STATE = "the machine, the queue and the time"
SMALL_MARGIN = 0.001
MAX_FEATURES = 3
"""The maximum number of features named in a sentence."""


@dataclass(frozen=True)
class TrainingData:
    """The training, evaluation and explanations of an agent."""

    name: str
    objective: str
    history: Sequence[Mapping[str, Any]] = ()
    """CMA-ES, for each generation: number, training, validation (None: not validated), relative to a policy. Networks,
    for each update: number, steps, mean_return, metric, losses, entropy, validation."""
    weights: Sequence[Sequence[Any]] = ()
    """CMA-ES: feature, weight, meaning."""
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    """Agent and other policies on later jobs, in the format of `kilowait compare`."""
    explained: Mapping[str, Any] = field(default_factory=dict)
    """Feature attribution and explained decisions."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    search_outcome: str | None = None
    """How the search ended, as a sentence; None for networks."""
    pareto_front: Mapping[str, Any] = field(default_factory=dict)
    """Preference-conditioned agents: the results under each preference."""

    @property
    def has_updates(self) -> bool:
        """Whether the history contains the updates of a network."""
        return any("steps" in row for row in self.history)


class AgentEvaluationData:
    """The evaluation of an agent against other policies."""

    def __init__(self, results: Mapping[str, Any]) -> None:
        """`results` is the evaluation in results.json."""
        self.results = results
        self.metric = str(results["metric"])
        self.rows = sorted((row for row in results["rows"] if row["kind"] != "clairvoyant"), key=self.value)
        names = [column.name for column in fields(PairwiseResult)]
        pairs: list[dict[str, Any]] = [
            null_to_nan({name: pair[name] for name in names}) for pair in results["judgement"]["pairs"]
        ]
        self._pairs = [PairwiseResult(**pair) for pair in pairs]

    def value(self, row: Mapping[str, Any], metric: str | None = None) -> float:
        """A metric of a policy; NaN where it is undefined.

        Folders without `starvation` have the mean of the windows' longest waits in place of the longest: NaN.
        """
        if metric in ("max_wait_s", "starved_jobs") and "starvation" not in self.results:
            return math.nan
        return null_to_nan(row["metrics"]).get(metric or self.metric, math.nan)

    def interval(self, row: Mapping[str, Any], metric: str | None = None) -> tuple[float, float]:
        """The confidence interval of the mean of a metric."""
        interval = null_to_nan(row["intervals"].get(metric or self.metric, {}))
        return interval.get("low", math.nan), interval.get("high", math.nan)

    @property
    def caveats(self) -> list[str]:
        """The limitations of the evaluation."""
        return [f"{capital(str(note))}." for note in self.results.get("notes") or ()]

    @property
    def metric_label(self) -> str:
        """The name of the evaluation metric for display."""
        name = metric_name(self.metric)
        return name if name.startswith(("mean", "median")) else f"mean {name}"

    @property
    def agent(self) -> str | None:
        """The label of the agent; None without one."""
        return next((str(row["label"]) for row in self.rows if row["kind"] == "agent"), None)

    @property
    def best_policy(self) -> str | None:
        """The label of the best priority policy; None without one."""
        return next((str(row["label"]) for row in self.rows if row["kind"] == "rule"), None)

    def pair(self, ours: str, theirs: str) -> PairwiseResult | None:
        """The pairwise result of two policies, from the view of the first."""
        for pair in self._pairs:
            if (pair.ours, pair.theirs) == (ours, theirs):
                return pair
            if (pair.theirs, pair.ours) == (ours, theirs):
                return pair.swapped()
        return None

    def sentences(self) -> list[str]:
        """Sentences on the difference between the agent and the best priority policy."""
        agent, best_policy = self.agent, self.best_policy
        pair = None if agent is None or best_policy is None else self.pair(agent, best_policy)
        if pair is None:
            return [str(sentence) for sentence in self.results.get("sentences", ())[:1]]
        gap = null_to_nan(self.results.get("gap_closed") or {}).get(str(agent), math.nan)
        return agent_sentences(pair, gap) + starvation_sentences(self.longest_wait_s, self.fcfs_label)

    @property
    def longest_wait_s(self) -> dict[str, float]:
        """The longest wait of every policy by label, seconds; NaN where it is unknown."""
        return {str(row["label"]): self.value(row, "max_wait_s") for row in self.rows}

    @property
    def fcfs_label(self) -> str | None:
        """The label of FCFS; None if it was not run."""
        return next((label for label in self.longest_wait_s if label == "fcfs"), None)


def signed(value: float) -> str:
    """A number with its sign.

    >>> signed(0.25), signed(-3.0), signed(0.0)
    ('+0.250', '−3.00', '0')
    """
    return "0" if value == 0 else f"{'−' if value < 0 else '+'}{number(abs(value))}"


def job_description(facts: Mapping[str, Any]) -> str:
    """The description of a job.

    >>> job_description({"nodes": 4.0, "estimate_s": 7200.0, "wait_s": 60.0})
    'of 4 nodes, estimated at 2 h 0 min, that had waited 1 min'
    """
    parts = []
    for name, word in (("nodes", "node"), ("gpus", "GPU")):
        if facts.get(name) is not None:
            parts.append(f"of {facts[name]:,g} {word}{'' if facts[name] == 1 else 's'}")
    if facts.get("estimate_s") is not None:
        parts.append(f"estimated at {format_duration(float(facts['estimate_s']))}")
    if facts.get("wait_s") is not None:
        waited = float(facts["wait_s"])
        parts.append("that had just been submitted" if waited < 1 else f"that had waited {format_duration(waited)}")
    return ", ".join(parts) or "without known features"


def decision_sentences(case: Mapping[str, Any], score: str) -> list[str]:
    """The explanation of one decision in sentences."""
    other = case["other"]
    condition = ", in an average state," if any(part["of"] == "whole" for part in case["parts"]) else ","
    margin = number(float(case["margin"])) if case["margin"] >= SMALL_MARGIN else f"less than {SMALL_MARGIN}"
    second_best = f"one {job_description(other)}" if other else "starting no job"
    sentences = [
        f"Of {int(case['choices']):,} eligible jobs the agent chose one {job_description(case['chosen'])}; the second "
        f"best was {second_best}.",
        f"The margin of the chosen job is {margin} ({score}). For the mean of the other "
        f"jobs{condition} the margin would have been {signed(float(case['usual']))}.",
    ]
    parts = sorted(case["parts"], key=lambda part: -abs(float(part["moved"])))
    in_favour = [part for part in parts if float(part["moved"]) > 0][:MAX_FEATURES]
    against = [part for part in parts if float(part["moved"]) < 0][:MAX_FEATURES]
    for words, named in (("for", in_favour), ("against", against)):
        if named:
            features = ", ".join(f"{part['name']} ({signed(float(part['moved']))})" for part in named)
            sentences.append(f"Main features {words} it: {features}.")
    return sentences


# -- tables ------------------------------------------------------------------------------------------


def evaluation_table(evaluation: AgentEvaluationData) -> ReportTable:
    """The main metrics of agent and other policies, best first; the best of each column is marked."""
    rows, best_policy = evaluation.rows, evaluation.best_policy
    labels = [str(row["label"]) for row in rows]
    timed = evaluation.metric.endswith("_s")
    metrics: list[Metric] = [(evaluation.metric, evaluation.metric_label, "less", format_duration if timed else number)]
    formats: dict[str, NumberFormat] = {
        "mean_bsld": number,
        "mean_wait_s": format_duration,
        "p99_wait_s": format_duration,
        "max_wait_s": format_duration,
        "utilization": share,
        "starved_jobs": count,
    }
    metrics += [
        (name, metric_name(name), better_of(name), cell)
        for name, cell in formats.items()
        if name != evaluation.metric and any(math.isfinite(evaluation.value(row, name)) for row in rows)
    ]
    columns = []
    for name, label, better, cell in metrics:
        intervals = [interval_text(*evaluation.interval(row, name), cell) for row in rows]
        values = [evaluation.value(row, name) for row in rows]
        shown = column(label, values, cell, better=better, small=intervals.__getitem__)
        columns.append(_marked(shown, evaluation) if name == "max_wait_s" else shown)
    if best_policy is not None and len(rows) > 1:
        columns.insert(
            1, ReportColumn(f"against {best_policy}", [_tested(evaluation, each, best_policy) for each in labels])
        )
    return table_of_columns(
        f"On {evaluation.results['cut']} of {evaluation.results['trace']}, later than the training jobs",
        "policy",
        labels,
        columns,
        marked=[place for place, row in enumerate(rows) if row["kind"] == "agent"],
        note=f"Small: 95 % interval. Bold with a dot: best of the column. {WINDOWS_NOTE}",
    )


def _marked(longest: ReportColumn, evaluation: AgentEvaluationData) -> ReportColumn:
    """The column of longest waits with those of policies with a risk of starvation marked."""
    starving = starvation(evaluation.longest_wait_s, evaluation.fcfs_label)
    waits = evaluation.longest_wait_s.items()
    cells = [
        starving_cell(wait_s, starving[label], str(evaluation.fcfs_label)) if label in starving else cell
        for (label, wait_s), cell in zip(waits, longest.cells, strict=True)
    ]
    return ReportColumn(longest.label, cells)


def _tested(evaluation: AgentEvaluationData, label: str, best_policy: str) -> Cell:
    pair = evaluation.pair(label, best_policy)
    return verdict_cell(pair, *([] if pair is None else [f"{pair.wins} of {pair.windows} won"]))


def evaluation_sentences(results: Mapping[str, Any]) -> list[str]:
    """The verdict on an agent on a GPU cluster or with power controls."""
    windows = int(results["windows"])
    if "front" in results:
        policies = len(results["policies"]) - 1
        return power_agent_sentences(results["margin"], str(results["objective"]), policies, windows)
    return gpu_agent_sentences(results["ratios"]["agent"], windows) if "agent" in results["ratios"] else []


def gpu_evaluation_table(results: Mapping[str, Any]) -> ReportTable:
    """Agent and other policies on a GPU cluster, by mean completion time."""
    policies = {name: null_to_nan(_numbers(row)) for name, row in results["policies"].items()}
    order = sorted(policies, key=lambda name: policies[name]["mean_jct_s"])
    metrics: tuple[Metric, ...] = (
        ("mean_jct_s", AGENT_METRIC_NAMES["mean_jct_s"], "less", format_duration),
        ("p95_jct_s", AGENT_METRIC_NAMES["p95_jct_s"], "less", format_duration),
        ("makespan_s", AGENT_METRIC_NAMES["makespan_s"], "less", format_duration),
        ("gpu_utilization", AGENT_METRIC_NAMES["gpu_utilization"], "more", share),
        ("flops_utilization", AGENT_METRIC_NAMES["flops_utilization"], "more", share),
    )
    columns = _policy_columns(policies, order, metrics)
    ratios = [_known(results["ratios"].get(name) or [None] * 3) for name in order]
    cells = [_interval_cell(f"× {number(mean)}", *ends) if math.isfinite(mean) else "–" for mean, *ends in ratios]
    columns.insert(1, ReportColumn("against the best priority policy", cells))
    return table_of_columns(
        f"On {_windows(results)}",
        "policy",
        order,
        columns,
        marked=[place for place, name in enumerate(order) if name == "agent"],
        note="Small: 95 % interval. Bold with a dot: best of the column. Fastest: the fastest GPU types are tried "
        "first.",
    )


def energy_evaluation_table(results: Mapping[str, Any]) -> ReportTable:
    """Agent, policies with power controls on the Pareto front, and policies without power controls."""
    policies = {name: null_to_nan(row) for name, row in results["policies"].items()}
    resource = str(results["objective"])
    shown = {"agent", *results["front"], *(name for name in policies if name.endswith(", none"))}
    order = sorted(shown, key=lambda name: policies[name].get(resource, math.nan))
    metrics: tuple[Metric, ...] = (
        ("energy", AGENT_METRIC_NAMES["energy"], "less", number),
        ("co2", AGENT_METRIC_NAMES["co2"], "less", number),
        ("cost", AGENT_METRIC_NAMES["cost"], "less", number),
        ("slowdown", AGENT_METRIC_NAMES["slowdown"], "less", number),
        ("wait_s", AGENT_METRIC_NAMES["wait_s"], "less", format_duration),
        ("p95_wait_s", AGENT_METRIC_NAMES["p95_wait_s"], "less", format_duration),
    )
    columns = _policy_columns(policies, order, [metric for metric in metrics if metric[0] in policies["agent"]])
    note = (
        f"Of {len(policies) - 1:,} hand-tuned policies with power controls, the table shows the Pareto front of "
        f"{resource} and slowdown, and the policies without power controls. Slowdowns refer to the run time at full "
        "speed."
    )
    marked = [place for place, name in enumerate(order) if name == "agent"]
    return table_of_columns(f"On {_windows(results)}", "policy", order, columns, marked=marked, note=note)


def _policy_columns(
    policies: Mapping[str, Mapping[str, Any]], order: Sequence[str], metrics: Sequence[Metric]
) -> list[ReportColumn]:
    return [
        column(label, [policies[name].get(metric, math.nan) for name in order], cell, better=better)
        for metric, label, better, cell in metrics
    ]


def _windows(results: Mapping[str, Any]) -> str:
    windows, jobs = int(results["windows"]), int(results["window_jobs"])
    return f"{windows:,} windows of {jobs:,} jobs, later than the training jobs"


def _known(values: Sequence[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]


def _interval_cell(text: str, low: float, high: float) -> Cell:
    interval = interval_text(low, high, number)
    return Cell(text, small=(interval,) if interval else ())


def _numbers(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not isinstance(value, (list, tuple))}


def pareto_table(results: Mapping[str, Any]) -> ReportTable:
    """The value of every reward term under each preference, and under the reference policy."""
    terms = list(results["terms"])
    rows: list[list[Cell | str]] = [
        [
            *(f"{float(point['preference'][name]):.2f}" for name in terms),
            *(_pareto_cell(point, name) for name in terms),
            "dominated" if point["dominated"] else "",
        ]
        for point in results["points"]
    ]
    reference = results["reference"]
    rows.append(
        [str(reference["name"]), *[""] * (len(terms) - 1), *(_pareto_cell(reference, name) for name in terms), ""]
    )
    meanings = "; ".join(
        f"{name}: {meaning}, in units of {number(float(results['units'][name]))}"
        for name, meaning in results["terms"].items()
    )
    return ReportTable(
        f"One agent under {len(results['points'])} preferences, on {_windows(results)}",
        [*(f"weight of {name}" for name in terms), *terms, ""],
        rows,
        text_columns=(2 * len(terms),),
        faint=[len(rows) - 1],
        note=f"Small: 95 % interval. {capital(meanings)}. Less is better.",
    )


def _pareto_cell(row: Mapping[str, Any], name: str) -> Cell:
    low, high = (row.get("intervals") or {}).get(name) or (None, None)
    ends = (math.nan, math.nan) if low is None or high is None else (float(low), float(high))
    return _interval_cell(number(float(row["metrics"][name])), *ends)


def weights_table(weights: Sequence[Sequence[Any]]) -> ReportTable:
    """The weights of a linear agent."""
    rows = [[str(name), f"{float(weight):+.3f}".replace("-", "−"), str(meaning)] for name, weight, meaning in weights]
    return ReportTable(
        "Weights of the agent",
        ["feature", "weight", "meaning"],
        rows,
        text_columns=(2,),
        note="Score = sum of weight × feature; the job with the smallest score starts first, so a positive weight "
        "lowers its priority.",
    )


def feature_table(explained: Mapping[str, Any]) -> ReportTable:
    """All features with their mean attribution and meaning."""
    rows = [
        [
            str(part["name"]),
            number(float(part["mean"])),
            signed(float(part["leaning"])),
            "job" if part["of"] == "job" else "state",
            str(part["meaning"]),
        ]
        for part in sorted(explained["usual"], key=lambda part: -part["mean"])
    ]
    caption = f"Feature attribution, over {int(explained['measured']):,} decisions"
    return ReportTable(caption, ["feature", "mean share", "effect of + 1", "of", "meaning"], rows, text_columns=(4,))


def decision_table(case: Mapping[str, Any]) -> ReportTable:
    """The effect of every feature on the margin of one decision."""
    rows = [
        [
            str(part["name"]),
            signed(float(part["moved"])),
            _with_minus(float(part["value"])),
            _with_minus(float(part["usual"])),
            "the job" if part["of"] == "job" else STATE,
        ]
        for part in sorted(case["parts"], key=lambda part: -abs(float(part["moved"])))
    ]
    rows.append(["total", signed(sum(float(part["moved"]) for part in case["parts"])), "", "", ""])
    has_state = any(part["of"] == "whole" for part in case["parts"])
    state_note = ", for the state the mean of all decisions" if has_state else ""
    return ReportTable(
        f"Decision: {case['which']}",
        ["feature", "effect on margin", "value", "baseline", "of"],
        rows,
        text_columns=(4,),
        faint=[len(rows) - 1],
        note=f"Baseline: for the job the mean of the other eligible jobs{state_note}.",
    )


def settings_table(settings: Mapping[str, Any]) -> ReportTable:
    """The training settings."""
    rows = [
        [str(name), value if isinstance(value, str) else json.dumps(value, default=str)]
        for name, value in settings.items()
    ]
    return ReportTable("Training settings", ["setting", "value"], rows, text_columns=(1,))


def _with_minus(value: float) -> str:
    return f"−{number(-value)}" if value < 0 else number(value)
