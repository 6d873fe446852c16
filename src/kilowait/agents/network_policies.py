"""Trained networks as policies: they receive the observations of the environments and decide greedily.

One class for each environment: `NetworkAgent` for batch systems, `GpuNetworkAgent` for node-level GPU clusters and
`EnergyNetworkAgent` for clusters with power. Small networks for batch systems that score jobs one by one (kind
"kernel") run inside the engine, at compiled speed; all others are called from Python, one observation at a time.

In a training with several objectives the preference between them is the last part of the summary
(`kilowait.envs.preferences`). For evaluation it is fixed: every feature extractor multiplies the summary by one matrix,
so a fixed preference becomes part of that layer's bias, and the result is an ordinary network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from os import PathLike
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch

from kilowait.agents.networks.factory import MAX_QUEUE_WINDOW, load_network, network_from_config
from kilowait.agents.networks.feature_extractor import KernelExtractor
from kilowait.agents.networks.heads import Network, greedy_actions
from kilowait.agents.networks.spec import LoadedSpec, ObservationSpecProtocol, spec_from_dict, spec_to_dict
from kilowait.agents.rl.device import use_device
from kilowait.engine.gpu.settings import GpuSettings
from kilowait.engine.policy import RunInputs, gpu_settings_of, settings_of
from kilowait.envs.batch_env import DecisionSettings, ObservationPolicy
from kilowait.envs.energy_env import EnergyDecisionSettings, run_energy_policy
from kilowait.envs.gpu_env import GpuDecisionSettings, run_gpu_policy
from kilowait.envs.kernels.inline_network import NetworkWeights
from kilowait.envs.observation_spec import PREFERENCE_PREFIX
from kilowait.envs.power_setup import PowerConfig
from kilowait.envs.preferences import preference_text, weights_from
from kilowait.errors import InputError, KilowaitError, UnknownNameError
from kilowait.files.fields import Anything, Either, Field, Flag, Items, Null, Number, Record, Text, Values, check_fields
from kilowait.jobs import ExecutionLog
from kilowait.policies import resolve


def preference_terms(spec: ObservationSpecProtocol) -> tuple[str, ...]:
    """The terms of the preference that a network of this spec takes as input; empty if it takes none.

    >>> preference_terms(LoadedSpec(("wait",), ("free", "prefers_sla", "prefers_wait"), 4, 1, 0, False))
    ('sla', 'wait')
    """
    return tuple(name.removeprefix(PREFERENCE_PREFIX) for name in spec.summary if name.startswith(PREFERENCE_PREFIX))


def plain_spec(spec: ObservationSpecProtocol) -> LoadedSpec:
    """The same spec without the preference."""
    description = spec_to_dict(spec)
    summary = [name for name in description["summary"] if not name.startswith(PREFERENCE_PREFIX)]
    return spec_from_dict({**description, "summary": summary})


def with_fixed_preference(network: Network, preference: dict[str, float], *, name: str = "agent") -> Network:
    """The network with this preference fixed, as a network without preference input.

    Weights are normalized to a sum of 1; terms that are not named have 0.

    >>> from kilowait.agents.networks import network
    >>> net = network(LoadedSpec(("wait",), ("free", "prefers_sla", "prefers_wait"), 4, 1, 0, False))
    >>> with_fixed_preference(net, {"sla": 1, "wait": 3}).spec.summary
    ('free',)
    """
    spec = network.spec
    terms = preference_terms(spec)
    if not terms:
        raise InputError(
            f"{name} takes no preference: it was trained for one reward, or its preference is already fixed"
        )
    weights = weights_from(preference, terms)
    columns = [column for column, feature in enumerate(spec.summary) if feature.startswith(PREFERENCE_PREFIX)]
    other_columns = [column for column, feature in enumerate(spec.summary) if not feature.startswith(PREFERENCE_PREFIX)]
    state = dict(network.state_dict())
    matrix = state["body.summary.weight"]
    weights_tensor = torch.from_numpy(weights).to(matrix)
    state["body.summary.bias"] = state["body.summary.bias"] + matrix[:, columns] @ weights_tensor
    state["body.summary.weight"] = matrix[:, other_columns]
    fixed_network = network_from_config(spec_to_dict(plain_spec(spec)), network.config).to(matrix.device)
    fixed_network.load_state_dict(state)
    provenance = dict(getattr(network, "provenance", {}))
    fixed_network.provenance = {**provenance, "preference": dict(zip(terms, weights.tolist(), strict=True))}
    return fixed_network.eval()


class PreferenceConditioned:
    """Base class of agents with a network, which may need a preference before they run."""

    network: Network
    name: str

    @property
    def provenance(self) -> dict[str, Any]:
        """Origin of the network."""
        return getattr(self.network, "provenance", {})

    def decide(self, observation: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.int64]:
        """(B,) the greedy actions of the network."""
        return greedy_actions(self.network, observation)

    @property
    def preferences(self) -> tuple[str, ...]:
        """The terms of the preference it needs; empty if it needs none."""
        return preference_terms(self.network.spec)

    def prefer(self, **weights: float) -> Self:
        """The agent with this preference: ``agent.prefer(slowdown=0.3, energy=0.7)``.

        Weights are normalized to a sum of 1; terms that are not named have 0.
        """
        this: Any = self
        network = with_fixed_preference(self.network, weights, name=f"agent {self.name!r}")
        return replace(this, network=network, name=f"{self.name} {preference_text(weights)}")  # type: ignore[no-any-return]

    def untrained(self, seed: int = 0) -> Self:
        """The agent with initial weights drawn from `seed` instead of the trained ones: a control in comparisons.

        An environment already backfills in a good order, so that even an untrained network may have short waits.
        """
        this: Any = self
        network = network_from_config(spec_to_dict(self.network.spec), self.network.config, seed=seed).eval()
        network.provenance = {**getattr(self.network, "provenance", {}), "untrained": seed}
        return replace(this, network=network, name=f"{self.name} untrained")  # type: ignore[no-any-return]

    def check_preference_fixed(self) -> None:
        """Raise an error if the network needs a preference and has none."""
        terms = self.preferences
        if terms:
            even = {term: round(1 / len(terms), 2) for term in terms}
            python = ", ".join(f"{term}={weight:g}" for term, weight in even.items())
            raise InputError(
                f"agent {self.name!r} needs a preference between {' and '.join(terms)}, and none is set; use "
                f"agent.prefer({python}), on the command line agent:PATH:prefer={preference_text(even)}"
            )


@dataclass(frozen=True, eq=False)
class NetworkAgent(PreferenceConditioned):
    """A network and its decision settings; ``kilowait.simulate(jobs, cluster, agent, "easy")``."""

    network: Network
    decision_settings: DecisionSettings
    """Decision settings of the training: queue window, backfill order, hold action, graph."""
    name: str = "agent"

    def run(self, inputs: RunInputs) -> ExecutionLog:
        """Simulate a run under its greedy decisions."""
        self.check_preference_fixed()
        weights = engine_weights(self.network)
        decide = self.decide if weights is None else weights
        with use_device("cpu", 1):
            return ObservationPolicy(self.name, decide, self.decision_settings).run(inputs)


@dataclass(frozen=True, eq=False)
class GpuNetworkAgent(PreferenceConditioned):
    """A network and its decision settings; ``kilowait.simulate(jobs, cluster, agent)`` on node-level GPU clusters."""

    network: Network
    decision_settings: GpuDecisionSettings
    name: str = "agent"

    skips = True
    """Whether a job that does not fit is skipped, so that it does not block the others."""

    @property
    def gpu_settings(self) -> tuple[tuple[str, Any], ...]:
        """GPU settings of the training, in the form that policies declare them."""
        return tuple(self.provenance.get("gpu_settings", {}).items())

    @property
    def freedom(self) -> tuple[tuple[str, Any], ...]:
        """What its decisions do, whatever the settings say; the log records it."""
        types = (("gpu_type_order", "given"),) if self.decision_settings.by_type else ()
        return (("preempt", self.decision_settings.preempt), *types)

    def run(self, inputs: RunInputs) -> ExecutionLog:
        """Simulate a run under its greedy decisions."""
        self.check_preference_fixed()
        cluster, gpu_settings = inputs.cluster, gpu_settings_of(inputs, self.name)
        observed = spec_to_dict(self.decision_settings.observation_spec(cluster))
        if observed != spec_to_dict(self.network.spec):
            raise InputError(
                f"agent {self.name!r} was trained on other GPU types than {cluster.name!r} has; train one on it"
            )
        with use_device("cpu", 1):
            log = run_gpu_policy(
                inputs.jobs,
                cluster,
                self.decide,
                decision_settings=self.decision_settings,
                gpu_settings=gpu_settings,
                speeds=inputs.speeds,
                preference=inputs.preference,
                name=self.name,
            )
        return replace(log, run={**log.run, **dict(self.freedom)})


@dataclass(frozen=True, eq=False)
class EnergyNetworkAgent(PreferenceConditioned):
    """A network and its decision settings.

    Run it with ``kilowait.simulate(jobs, cluster, agent.bind_power(PowerConfig(...)), "easy")``.
    """

    network: Network
    decision_settings: EnergyDecisionSettings
    power_controls: str
    """Power controls it was trained with, as on the command line."""
    name: str = "agent"
    power: PowerConfig | None = None
    """Power model, signals and controls of a run; None: not bound yet, see `bind_power`."""

    def bind_power(self, power: PowerConfig) -> EnergyNetworkAgent:
        """The agent on a machine with this power model, these signals and power controls."""
        return replace(self, power=power)

    def run(self, inputs: RunInputs) -> ExecutionLog:
        """Simulate a run under its greedy decisions; DVFS states and sleep settings are those of its own controls."""
        settings, jobs, cluster = settings_of(inputs, self.name), inputs.jobs, inputs.cluster
        self.check_preference_fixed()
        if self.power is None:
            raise InputError(
                f"agent {self.name!r} was trained on kilowait/Energy-v0 and needs a power model and power controls; "
                f"give --power and --power-controls {self.power_controls}"
            )
        decision_settings = replace(
            self.decision_settings,
            backfill=settings.backfill,
            at_limit=settings.at_limit,
            placement=settings.placement,
            overrun=settings.overrun,
            max_wait_s=min(self.decision_settings.max_wait_s, settings.max_wait_s),
        )
        observed = spec_to_dict(
            decision_settings.observation_spec_for(self.power.setup(jobs.sorted(), cluster, len(jobs)))
        )
        expected = spec_to_dict(self.network.spec)
        if observed != expected:
            differing = next(name for name in observed if observed[name] != expected.get(name))
            raise InputError(
                f"agent {self.name!r} was trained with other DVFS states, signals or sleep settings ({differing} "
                f"differ); "
                f"give the machine, the signals and --power-controls {self.power_controls} of the training"
            )
        with use_device("cpu", 1):
            return run_energy_policy(
                jobs,
                cluster,
                self.decide,
                power=self.power,
                decision_settings=decision_settings,
                settings=settings,
                name=self.name,
            )


def engine_weights(network: Network) -> NetworkWeights | None:
    """The weights as the engine takes them; None for a network that the engine cannot run.

    Of a dueling network only the advantages are taken: the state value is the same for all actions.
    """
    body = network.body
    if (
        not isinstance(body, KernelExtractor)
        or network.spec.extra
        or network.spec.choices > 1
        or network.outputs.numbers > 1
        or network.config.get("noisy")
    ):
        return None

    def array(tensor: Any) -> Any:
        return np.ascontiguousarray(tensor.detach().cpu().numpy(), np.float32)

    width, inner = body.width, list(body.layers)
    return NetworkWeights(
        job=array(body.job.weight.T),
        summary=array(body.summary.weight.T),
        bias=array(body.job.bias + body.summary.bias),
        hidden=np.stack([array(layer.weight.T) for layer in inner])
        if inner
        else np.zeros((0, width, width), np.float32),
        hidden_bias=np.stack([array(layer.bias) for layer in inner]) if inner else np.zeros((0, width), np.float32),
        out=array(network.outputs.job.weight[0]),
    )


def network_agent(
    path: str | PathLike[str], *, name: str = "agent"
) -> NetworkAgent | GpuNetworkAgent | EnergyNetworkAgent:
    """The agent in an ``agent.pt``, with the decision settings of its training."""
    network = load_network(path)
    saved = network.provenance.get("decision_settings")
    if saved is None:
        raise InputError(
            f"{path} contains a network without its decision settings; train it with kilowait train, or create a "
            "NetworkAgent(network, DecisionSettings(...))"
        )
    _check_provenance(network.provenance, path)
    try:
        return _agent(network, saved, path, name)
    except InputError as problem:
        raise problem if str(path) in str(problem) else InputError(f"{path}: {problem}; train it again") from None
    except UnknownNameError as problem:
        raise InputError(f"{path}: {problem}; train it again") from None


def _agent(
    network: Network, saved: dict[str, Any], path: str | PathLike[str], name: str
) -> NetworkAgent | GpuNetworkAgent | EnergyNetworkAgent:
    """The agent of a network whose provenance is checked."""
    saved = {**saved, "max_wait_s": float(saved.get("max_wait_s") or np.inf)}
    if network.provenance.get("env") == "kilowait/Gpu-v0":
        saved["placements"] = tuple(saved["placements"])
        return GpuNetworkAgent(network, GpuDecisionSettings(**saved), name)
    if network.provenance.get("env") == "kilowait/Energy-v0":
        return EnergyNetworkAgent(network, EnergyDecisionSettings(**saved), network.provenance["power_controls"], name)
    decision_settings = DecisionSettings(**saved)
    if decision_settings.backfill_order != "agent":
        resolve(decision_settings.backfill_order)
    if spec_to_dict(decision_settings.observation_spec) != spec_to_dict(plain_spec(network.spec)):
        raise InputError(
            f"{path} was trained by another version: it needs {spec_to_dict(network.spec)}, and this kilowait observes "
            f"{spec_to_dict(decision_settings.observation_spec)}; train it again"
        )
    return NetworkAgent(network, decision_settings, name)


def settings_to_dict(
    decision_settings: DecisionSettings | GpuDecisionSettings | EnergyDecisionSettings,
) -> dict[str, Any]:
    """The decision settings as plain data, for the file."""
    saved = asdict(decision_settings)
    if "placements" in saved:
        saved["placements"] = list(saved["placements"])
    order = saved.get("backfill_order")
    if order is not None and not isinstance(order, str):
        saved["backfill_order"] = decision_settings.backfill_order.name  # type: ignore[union-attr]
    saved["max_wait_s"] = None if np.isinf(decision_settings.max_wait_s) else decision_settings.max_wait_s
    # Older files have no such fields: they are written where they are true only.
    return {name: value for name, value in saved.items() if name not in _OPTIONAL or value}


MAX_SECONDS = 1e12
MAX_STARTS = 10_000
"""Maximum number of preemptions of a job: the engine needs memory for every start."""

_SECONDS = Number(0, MAX_SECONDS)
_INTERVAL = Either(Number(0, 0), Number(1, MAX_SECONDS))
"""Seconds between scheduling passes: none, or at least 1, as a run needs time for each of them."""
_WINDOW = Number(1, MAX_QUEUE_WINDOW, whole=True)
_COMMON: dict[str, Field] = {
    "queue_window": _WINDOW,
    "max_wait_s": Either(Null(), _SECONDS),
    "hold": Flag(),
    "graph": Flag(),
}
_BATCH: dict[str, Field] = {
    **_COMMON,
    "backfill": Either(Text(), Number(0, 1_000_000, whole=True)),
    "backfill_order": Text(),
    "at_limit": Text(),
    "placement": Text(),
    "overrun": Text(),
}
_OPTIONAL: dict[str, Field] = {"prediction_features": Flag(), "request_features": Flag()}
_SETTINGS: dict[str, tuple[dict[str, Field], dict[str, Field]]] = {
    "kilowait/Gpu-v0": (
        {
            **_COMMON,
            "by_type": Flag(),
            "placements": Items(Text(), maximum=100),
            "preempt": Flag(),
            "victims": _WINDOW,
            "max_preemptions": Number(1, MAX_STARTS, whole=True),
        },
        {},
    ),
    "kilowait/Energy-v0": (
        {**_BATCH, "hold_s": Number(1, MAX_SECONDS), "max_wait_for_hold_s": Number(0, 1e7), "sleep_actions": Flag()},
        _OPTIONAL,
    ),
}
"""Required and optional decision settings by environment."""
_GPU_SETTINGS: dict[str, Field] = {
    **dict.fromkeys(("head_of_line_blocking", "preempt", "migrate"), Flag()),
    **dict.fromkeys(("min_run_before_preempt_s", "grace_s", "checkpoint_write_s", "checkpoint_load_s"), _SECONDS),
    **dict.fromkeys(("placement", "gpu_type_order", "at_limit", "on_oversized"), Text()),
    "checkpoint_s": _SECONDS,
    "round_interval_s": _INTERVAL,
}


def _check_provenance(provenance: Mapping[str, Any], source: str | PathLike[str]) -> None:
    """Raise an InputError that names the invalid field of a network's provenance, which has decision settings.

    Args:
        provenance: of the network.
        source: the file, for the error.
    """
    required, optional = _SETTINGS.get(str(provenance.get("env")), (_BATCH, _OPTIONAL))
    fields: dict[str, Field] = {"decision_settings": Record(required, optional)}
    if provenance.get("env") == "kilowait/Energy-v0":
        fields["power_controls"] = Text()
    others = {
        "env": Text(),
        "gpu_settings": Record({}, _GPU_SETTINGS),
        "training": Values(Anything()),
        "units": Values(Number(0)),
    }
    check_fields(dict(provenance), Record(fields, others), source, remedy="train it again")
    found = {"decision_settings": {**required, **optional}, "gpu_settings": _GPU_SETTINGS}
    for field, known in found.items():
        for name in provenance.get(field, {}):
            if name not in known:
                raise InputError(f"{source}: {field} has the unknown field {str(name)[:60]!r}; train it again")
    try:
        GpuSettings(**provenance.get("gpu_settings", {}))
    except KilowaitError as problem:
        raise InputError(f"{source}: gpu_settings: {problem}; train it again") from None
