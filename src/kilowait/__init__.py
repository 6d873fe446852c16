"""kilowait: energy- and carbon-aware job scheduling for batch systems.

Names are loaded when they are first used, so that ``import kilowait`` stays quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kilowait.agents import load_agent
    from kilowait.cluster import Cluster, NodeGroup, Outage, PowerControls, Reservation, SleepPolicy
    from kilowait.cluster.gpu_speeds import Speeds
    from kilowait.energy import account_energy
    from kilowait.engine.gpu.settings import GpuSettings
    from kilowait.engine.interface import Choice, PriorityPolicy, View
    from kilowait.engine.policy import Policy, RunInputs
    from kilowait.engine.settings import Settings
    from kilowait.engine.simulator import Simulator
    from kilowait.evaluation import fairness, gpu_metrics, metrics
    from kilowait.evaluation.comparison import Comparison, cut_windows, split
    from kilowait.experiments.comparison.compare import compare
    from kilowait.experiments.predictors import with_predicted_runtimes as predict_runtimes
    from kilowait.experiments.training.evaluate import evaluate
    from kilowait.experiments.training.train import train
    from kilowait.jobs import ExecutionLog, JobTable
    from kilowait.policies import policy, simulate
    from kilowait.report import write_report
    from kilowait.synth import lublin, offered_load, rescale_load
    from kilowait.traces import read_nodes, read_trace, write_trace

__version__ = "0.1.0"

_HOME = {
    "Choice": "engine.interface",
    "Comparison": "evaluation.comparison",
    "Policy": "engine.policy",
    "RunInputs": "engine.policy",
    "account_energy": "energy",
    "predict_runtimes": "experiments.predictors:with_predicted_runtimes",
    "write_report": "report",
    "Cluster": "cluster",
    "JobTable": "jobs",
    "PowerControls": "cluster",
    "NodeGroup": "cluster",
    "Outage": "cluster",
    "GpuSettings": "engine.gpu.settings",
    "Reservation": "cluster",
    "PriorityPolicy": "engine.interface",
    "ExecutionLog": "jobs",
    "Settings": "engine.settings",
    "Simulator": "engine.simulator",
    "SleepPolicy": "cluster",
    "Speeds": "cluster.gpu_speeds",
    "View": "engine.interface",
    "compare": "experiments.comparison.compare",
    "cut_windows": "evaluation.comparison",
    "evaluate": "experiments.training.evaluate",
    "fairness": "evaluation",
    "gpu_metrics": "evaluation",
    "load_agent": "agents",
    "lublin": "synth",
    "metrics": "evaluation",
    "offered_load": "synth",
    "policy": "policies",
    "read_nodes": "traces",
    "read_trace": "traces",
    "rescale_load": "synth",
    "simulate": "policies",
    "split": "evaluation.comparison",
    "train": "experiments.training.train",
    "write_trace": "traces",
}

__all__ = [
    "Choice",
    "Cluster",
    "Comparison",
    "ExecutionLog",
    "GpuSettings",
    "JobTable",
    "NodeGroup",
    "Outage",
    "Policy",
    "PowerControls",
    "PriorityPolicy",
    "Reservation",
    "RunInputs",
    "Settings",
    "Simulator",
    "SleepPolicy",
    "Speeds",
    "View",
    "__version__",
    "account_energy",
    "compare",
    "cut_windows",
    "evaluate",
    "fairness",
    "gpu_metrics",
    "load_agent",
    "lublin",
    "metrics",
    "offered_load",
    "policy",
    "predict_runtimes",
    "read_nodes",
    "read_trace",
    "rescale_load",
    "simulate",
    "split",
    "train",
    "write_report",
    "write_trace",
]


_SUBMODULES = (
    "agents",
    "cluster",
    "energy",
    "engine",
    "envs",
    "evaluation",
    "experiments",
    "jobs",
    "policies",
    "predict",
    "report",
    "synth",
    "telemetry",
    "traces",
)


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return import_module(f"kilowait.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'kilowait' has no attribute {name!r}")
    module, _, attribute = _HOME[name].partition(":")
    value = getattr(import_module(f"kilowait.{module}"), attribute or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted((*__all__, *_SUBMODULES))
