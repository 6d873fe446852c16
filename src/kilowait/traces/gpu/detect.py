"""Detection of GPU and cloud trace formats by the header or the form of the lines."""

from __future__ import annotations

from collections.abc import Sequence

from kilowait.traces.gpu.google import JOB_EVENTS, TASK_EVENTS
from kilowait.traces.gpu.pai import pai_table

__all__ = ["gpu_format", "node_list"]

_EXACT = {
    "arrival_time,length,cpus": "pai",
    "arrival_time,runtime,gpus,priority": "spot",
    "timestamp,duration,num_gpus,gpu_time,cluster": "philly",
    ",run_time,wait_time,submit_time,gpu_num": "philly",
}
_HOLDS = {
    "name cpu_milli memory_mib num_gpu gpu_milli": "openb",
    "job_name gpu_request worker_num submit_time duration job_type": "spot",
    "job_id vc gpu_num node_num state submit_time start_time end_time": "helios",
    "job_id tenant submit_time num_chips num_nodes duration_s final_status": "helios",
    "id_job time_submit time_start time_end mem_req tres_alloc": "supercloud",
    "time type collection_id": "google2019",
}
_NODES = {"sn cpu_milli memory_mib gpu model": "openb", "node_name gpu_model gpu_capacity_num cpu_num": "spot"}


def gpu_format(lines: Sequence[str]) -> str | None:
    """The format in `GPU_FORMATS` of a file that starts with these non-blank lines; None if it is none of them.

    >>> (gpu_format(["arrival_time,length,cpus", "0.0,25.4,1"]), gpu_format(["job_id,submit_s,runtime_s,nodes"]))
    ('pai', None)
    """
    plain = [line for line in lines[:100] if not line.startswith("#")]
    if not plain:
        return None
    start = plain[0].lstrip()
    if start[:1] in ("[", "{"):
        text = "".join(plain)
        if '"attempts"' in text and '"jobid"' in text:
            return "philly"
        return "google2019" if start[0] == "{" and '"collection_id"' in text else None
    if plain[0].strip() in _EXACT:
        return _EXACT[plain[0].strip()]
    names = {name.strip() for name in plain[0].split(",")}
    for wanted, found in _HOLDS.items():
        if names >= set(wanted.split()):
            return found
    sample = plain[:50]
    if sum(pai_table(line) is not None for line in sample) * 2 > len(sample):
        return "pai"
    header = not any(name.isdigit() for name in names)  # The 2011 trace has none; its first field is a time.
    if not header and sum(_google_like(line) for line in sample) * 2 > len(sample):
        return "google2011"
    return None


def node_list(lines: Sequence[str]) -> str | None:
    """Origin of the node list that starts with these lines; None if it is not a node list.

    >>> node_list(["sn,cpu_milli,memory_mib,gpu,model"]), node_list(["job_id,submit_s"])
    ('openb', None)
    """
    first = next((line for line in lines[:100] if line.strip() and not line.startswith("#")), "")
    names = {name.strip() for name in first.split(",")}
    for wanted, found in _NODES.items():
        if names >= set(wanted.split()):
            return found
    return "pai" if pai_table(first) == "machine" else None


def _google_like(line: str) -> bool:
    """Whether a line is an event of the 2011 trace: whole numbers for time, job and event type."""
    fields = line.split(",")
    if len(fields) == len(TASK_EVENTS):
        numbers, event = [fields[0], fields[2], fields[3]], fields[5]
    elif len(fields) == len(JOB_EVENTS):
        numbers, event = [fields[0], fields[2]], fields[3]
    else:
        return False
    return all(text.isdigit() for text in numbers) and event in tuple("012345678")
