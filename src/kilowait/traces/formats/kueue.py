"""Reader of Kueue's Workload objects, as printed by ``kubectl get workloads -A -o json``, with quotas and cohorts."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from kilowait.errors import TraceError
from kilowait.traces.cell_parser import coded, unix_s
from kilowait.traces.clean import Floats, RawColumns
from kilowait.traces.cleaning_report import CleaningReport
from kilowait.traces.formats.csv_rows import HUGE, set_cpus, set_gpus_on_any_nodes, set_workers
from kilowait.traces.trace_input import TraceInput

_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(|[numkMGTPE]|[KMGTPE]i)")
_SUFFIX = {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3}
_SUFFIX |= {letter: 1000.0**power for power, letter in enumerate("MGTPE", start=2)}
_SUFFIX |= {f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTPE", start=1)}
_GPU = re.compile(r"[^/]+/gpu")
"""Whole GPUs: nvidia.com/gpu, amd.com/gpu."""
_STATUS = {"Succeeded": 1.0, "Failed": 0.0, "AdmissionChecksRejected": 5.0}
"""Reasons of the condition Finished."""
_PAST_S = ("accumulatedPastExecutionTimeSeconds", "accumulatedPastExexcutionTimeSeconds")
"""Seconds of earlier admissions; earlier versions of the API misspell the name."""

Json = Mapping[str, Any]


class _Pods(NamedTuple):
    """Equal pods of a workload."""

    number: float
    requests: dict[str, float]
    """Request of one pod by resource."""


def quantity(text: Any) -> float:
    """The number that a quantity of Kubernetes stands for; NaN if it is none.

    >>> [quantity(text) for text in ("500m", "2", "1Gi", "1e3", "129M", 4, "x")]
    [0.5, 2.0, 1073741824.0, 1000.0, 129000000.0, 4.0, nan]
    """
    match = _QUANTITY.fullmatch(str(text)[:40])
    value = float(match[1]) * _SUFFIX[match[2]] if match else np.nan
    return value if abs(value) < HUGE else np.nan


def read_kueue(source: TraceInput, report: CleaningReport) -> tuple[RawColumns, dict[str, Any]]:
    """Read one job per Workload; pods are its nodes. ClusterQueues in the same list give quotas and cohorts."""
    items = _items(source.take_text(report, "a list of workloads"))
    kinds = Counter(str(item.get("kind")) for item in items)
    workloads = [(place, item) for place, item in enumerate(items, start=1) if item.get("kind") == "Workload"]
    report.rows_read = len(workloads)
    if not workloads:
        listed = ", ".join(sorted(kinds)) or "nothing"
        raise TraceError(
            f"this list has no Workload of Kueue, but {listed}; print them with: kubectl get workloads -A -o json"
        )
    others = {kind: count for kind, count in kinds.items() if kind not in ("Workload", "ClusterQueue")}
    for kind, count in sorted(others.items()):
        report.add("note", f"objects of kind {kind} left out", count)
    draft = RawColumns(np.array([place for place, _ in workloads], np.int64), {})
    objects = [item for _, item in workloads]
    _times(draft, objects, report)
    _resources(draft, objects, report)
    _labels(draft, objects, report)
    meta: dict[str, Any] = {"unix_start_s": 0, "time_zone": "UTC"}
    queues = {
        str(_get(item, "metadata", "name")): _quotas(item) for item in items if item.get("kind") == "ClusterQueue"
    }
    if queues:
        meta["cluster_queues"] = queues
        cohorts = len({queue["cohort"] for queue in queues.values() if queue["cohort"]})
        reason = f"quotas of {len(queues)} ClusterQueues in {cohorts} cohorts are in meta['cluster_queues']"
        report.add("note", f"{reason}; the simulation does not use them", len(queues))
    return draft, meta


def _items(text: str) -> list[Json]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise TraceError(f"this JSON cannot be read: {problem}; get the file again") from None
    if isinstance(data, dict):
        data = data.get("items", [data])
    return [item for item in data if isinstance(item, dict)] if isinstance(data, list) else []


def _get(item: Any, *path: str) -> Any:
    """The value at this path of nested objects; None if there is none."""
    for name in path:
        item = item.get(name) if isinstance(item, dict) else None
    return item


def _object(item: Any, *path: str) -> Json:
    found = _get(item, *path)
    return found if isinstance(found, dict) else {}


def _list(item: Any, *path: str) -> list[Json]:
    found = _get(item, *path)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


# -- times -----------------------------------------------------------------------------------------


def _condition(item: Json, kind: str) -> Json | None:
    """The condition of this type, whether it holds or not."""
    return next((each for each in _list(item, "status", "conditions") if each.get("type") == kind), None)


def _holds(condition: Json | None) -> bool:
    return condition is not None and str(condition.get("status")) == "True"


def _moments(conditions: list[Json | None]) -> Floats:
    """Times since which the conditions hold; NaN for those that do not."""
    times = (_moment(_get(each, "lastTransitionTime")) if _holds(each) else np.nan for each in conditions)
    return np.fromiter(times, np.float64, len(conditions))


def _moment(text: Any) -> float:
    return unix_s(text) if isinstance(text, str) and text[4:5] == "-" else np.nan


def _times(draft: RawColumns, objects: list[Json], report: CleaningReport) -> None:
    admitted, finished = ([_condition(item, kind) for item in objects] for kind in ("Admitted", "Finished"))
    start, end = _moments(admitted), _moments(finished)
    submit = np.array([_moment(_get(item, "metadata", "creationTimestamp")) for item in objects], np.float64)
    past = np.array([_past_s(item) for item in objects], np.float64)
    limits = [quantity(_get(item, "spec", "maximumExecutionTimeSeconds")) for item in objects]
    priorities = [quantity(_get(item, "spec", "priority")) for item in objects]
    ended, holds = ~np.isnan(end), ~np.isnan(start)
    # Newer versions end the admission when a workload finishes, and count its time among the past admissions.
    released = ended & ~holds & (past > 0)
    again = (holds & ended & (past > 0)) | (released & np.array([_was_evicted(item) for item in objects], np.bool_))
    reason = "admitted again after an eviction: run time of all admissions, the wait is unknown"
    report.add_rows("corrected", reason, again, draft.line)
    began = np.where(released, end - past, start)
    ran = holds | released | (ended & np.array([_get(each, "reason") == "Finished" for each in admitted], np.bool_))
    draft.numbers |= {
        "submit_s": submit,
        "runtime_s": np.where(released, past, end - start + past),
        "wait_s": np.where(again, np.nan, began - submit),
        "estimate_s": np.array(limits, np.float64),
        "priority": np.array(priorities, np.float64),
        "cancel_s": np.where(ended & ~ran, end, np.nan),
    }
    reasons = [str(_get(each, "reason")) if _holds(each) else "" for each in finished]
    draft.numbers["status"] = np.array([_STATUS.get(each, -1.0) for each in reasons], np.float64)
    for name in sorted(set(reasons) - set(_STATUS) - {""}):
        rows = np.array([each == name for each in reasons], np.bool_)
        report.add_rows("note", f"Finished for the reason {name}: status unknown", rows, draft.line)
    draft.invalid["still running when the list was made: run time unknown"] = holds & ~ended
    draft.never_ran = {
        "still waiting when the list was made": ~holds & ~ended,
        "finished without being admitted": ended & ~ran,
    }


def _was_evicted(item: Json) -> bool:
    return _condition(item, "Evicted") is not None


def _past_s(item: Json) -> float:
    found = (quantity(_get(item, "status", name)) for name in _PAST_S)
    return next((value for value in found if value > 0), 0.0)


# -- resources -------------------------------------------------------------------------------------


def _pod_requests(spec: Any) -> dict[str, float]:
    """Requests of one pod: the sum of its containers, or the largest init container; a limit stands for a request."""
    total: dict[str, float] = {}
    for container in _list(spec, "containers"):
        for name, value in _requests(container).items():
            total[name] = total.get(name, 0.0) + value
    for container in _list(spec, "initContainers"):
        for name, value in _requests(container).items():
            total[name] = max(total.get(name, 0.0), value)
    return total


def _requests(container: Json) -> dict[str, float]:
    resources = {**_object(container, "resources", "limits"), **_object(container, "resources", "requests")}
    return {name: quantity(value) for name, value in resources.items()}


def _pod_sets(item: Json) -> list[_Pods]:
    """The pods by the admission, which has the defaults of the cluster, else by the templates."""
    sets: list[_Pods] = []
    assigned = {str(each.get("name")): each for each in _list(item, "status", "admission", "podSetAssignments")}
    for pod_set in _list(item, "spec", "podSets"):
        found = assigned.get(str(pod_set.get("name")))
        count = quantity(_get(found, "count") if _get(found, "count") is not None else pod_set.get("count", 1))
        usage = _object(found, "resourceUsage")
        if usage and count > 0:
            requests = {name: quantity(value) / count for name, value in usage.items() if name != "pods"}
        else:
            requests = _pod_requests(_get(pod_set, "template", "spec"))
        if count > 0:
            sets.append(_Pods(count, requests))
    return sets


def _resources(draft: RawColumns, objects: list[Json], report: CleaningReport) -> None:
    all_sets = [_pod_sets(item) for item in objects]
    pods = np.array([sum(each.number for each in sets) or np.nan for sets in all_sets], np.float64)
    per_pod = [[_gpus(each.requests) for each in sets] for sets in all_sets]
    total = np.array(
        [sum(e.number * g for e, g in zip(s, p, strict=True)) for s, p in zip(all_sets, per_pod, strict=True)]
    )
    uniform = np.array([len(set(gpus)) < 2 for gpus in per_pod], np.bool_)
    each = np.array([gpus[0] if gpus else 0.0 for gpus in per_pod], np.float64)
    set_workers(draft, each, pods, report)
    if not uniform.all():
        set_gpus_on_any_nodes(draft, np.ceil(np.round(total, 6)), ~uniform)
        draft.numbers["gpu_milli"] = np.where(uniform, draft.get("gpu_milli"), np.nan)
        reason = "pods with different numbers of GPUs: the GPUs may be on any nodes"
        report.add_rows("note", reason, ~uniform, draft.line)
    milli = [_sum(sets, "cpu") * 1000 for sets in all_sets]
    set_cpus(draft, np.array(milli, np.float64))
    draft.numbers["memory_mb"] = np.array([_sum(sets, "memory") / 1e6 for sets in all_sets], np.float64)
    lost: dict[str, list[int]] = {}
    for index, sets in enumerate(all_sets):
        for name in {name for pod_set in sets for name in pod_set.requests}:
            if name not in ("cpu", "memory") and not _GPU.fullmatch(name):
                lost.setdefault(name, []).append(index)
    for name, rows in sorted(lost.items()):
        report.add(
            "note", f"requests of {name} left out: jobs have no such column", len(rows), int(draft.line[rows[0]])
        )


def _gpus(requests: Mapping[str, float]) -> float:
    return sum(value for name, value in requests.items() if _GPU.fullmatch(name))


def _sum(sets: Iterable[_Pods], name: str) -> float:
    """Request of all pods; NaN if none of them has one."""
    values = [each.number * each.requests[name] for each in sets if name in each.requests]
    return sum(values) if values else np.nan


# -- names and quotas ------------------------------------------------------------------------------


def _labels(draft: RawColumns, objects: list[Json], report: CleaningReport) -> None:
    local = [str(_get(item, "spec", "queueName") or "") for item in objects]
    cluster = [str(_get(item, "status", "admission", "clusterQueue") or "") for item in objects]
    use_cluster = any(cluster)
    draft.words |= {
        "queue": coded([a or b for a, b in zip(cluster, local, strict=True)] if use_cluster else local),
        "account": coded([str(_get(item, "metadata", "namespace") or "") for item in objects]),
        "qos": coded([_priority_class(item) for item in objects]),
        "name": coded([str(_get(item, "metadata", "name") or "") for item in objects]),
    }
    if use_cluster:
        other = np.array([bool(a) and bool(b) and a != b for a, b in zip(cluster, local, strict=True)], np.bool_)
        report.add_rows(
            "note", "the queue is the ClusterQueue; queueName, of the LocalQueue, left out", other, draft.line
        )
    flavored = [bool(_flavors(item)) for item in objects]
    reason = "flavors of an admission left out: they are what a workload got, not what it may run on"
    report.add_rows("note", reason, np.array(flavored, np.bool_), draft.line)


def _priority_class(item: Json) -> str:
    """Name of the priority class: of earlier versions of the API, then of version v1beta2."""
    return str(_get(item, "spec", "priorityClassName") or _get(item, "spec", "priorityClassRef", "name") or "")


def _flavors(item: Json) -> list[Any]:
    return [each["flavors"] for each in _list(item, "status", "admission", "podSetAssignments") if each.get("flavors")]


def _quotas(item: Json) -> dict[str, Any]:
    """Cohort, strategy and quotas by flavor and resource of a ClusterQueue."""
    quotas: dict[str, dict[str, dict[str, float]]] = {}
    for group in _list(item, "spec", "resourceGroups"):
        for flavor in _list(group, "flavors"):
            by_resource = quotas.setdefault(str(flavor.get("name")), {})
            for resource in _list(flavor, "resources"):
                names = ("nominalQuota", "borrowingLimit", "lendingLimit")
                limits = {name: quantity(resource[name]) for name in names if name in resource}
                known = {name: limit for name, limit in limits.items() if not np.isnan(limit)}
                by_resource[str(resource.get("name"))] = known
    return {
        "cohort": str(_get(item, "spec", "cohort") or _get(item, "spec", "cohortName") or ""),
        "strategy": str(_get(item, "spec", "queueingStrategy") or ""),
        "quotas": quotas,
    }
