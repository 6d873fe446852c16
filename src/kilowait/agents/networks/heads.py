"""Network heads: logits and a state value (`ActorCritic`), or Q values (`DuelingQ`), and the choice of actions."""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from kilowait.agents.networks.feature_extractor import (
    EncodedQueue,
    FeatureExtractor,
    Observation,
    orthogonal_linear,
    scatter_rows,
)
from kilowait.agents.networks.spec import ObservationSpecProtocol


class NoisyLinear(nn.Module):
    """Factorized Gaussian noise on weights and biases (Fortunato et al., "Noisy networks for exploration", ICLR 2018).

    `sample_noise` samples the noise from a given generator; in evaluation mode there is none.
    """

    input_noise: Tensor
    output_noise: Tensor

    def __init__(self, inputs: int, outputs: int, gain: float = 1.0, std: float = 0.5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.weight_std = nn.Parameter(torch.full((outputs, inputs), std / sqrt(inputs)))
        self.bias_std = nn.Parameter(torch.full((outputs,), std / sqrt(inputs)))
        nn.init.orthogonal_(self.weight, gain)
        self.register_buffer("input_noise", torch.zeros(inputs))
        self.register_buffer("output_noise", torch.zeros(outputs))

    def sample_noise(self, random: torch.Generator) -> None:
        """Sample new noise, used until the next call."""
        for noise in (self.input_noise, self.output_noise):
            noise.normal_(generator=random)
            noise.copy_(noise.sign() * noise.abs().sqrt())

    def forward(self, values: Tensor) -> Tensor:
        """The layer with its current noise, or without noise in evaluation mode."""
        if not self.training:
            return nn.functional.linear(values, self.weight, self.bias)
        weight = self.weight + self.weight_std * torch.outer(self.output_noise, self.input_noise)
        return nn.functional.linear(values, weight, self.bias + self.bias_std * self.output_noise)


class OutputLayers(nn.Module):
    """Output layers: `numbers` for every action, and `numbers` for the state."""

    def __init__(
        self, spec: ObservationSpecProtocol, width: int, numbers: int, gain: float, noisy: bool = False
    ) -> None:
        super().__init__()
        self.slots, self.choices, self.extra, self.numbers = spec.slots, spec.choices, spec.extra, numbers
        layer_type = NoisyLinear if noisy else orthogonal_linear
        self.job = layer_type(width, spec.choices * numbers, gain)
        self.trunk = nn.Sequential(orthogonal_linear(2 * width, width), nn.ReLU())
        self.other = layer_type(width, spec.extra * numbers, gain) if spec.extra else None
        self.state = layer_type(width, numbers, 1.0)

    def forward(self, observation: EncodedQueue) -> tuple[Tensor, Tensor]:
        """(B, actions, numbers) and (B, numbers), in float32 whatever the precision of the feature extractor."""
        batch = observation.context.shape[0]  # len() would be a constant in an exported network
        actions = scatter_rows(self.job(observation.rows), observation.positions, batch, self.slots)
        actions = actions.reshape(batch, self.slots * self.choices, self.numbers)
        state_vector = self.trunk(torch.cat([observation.context, observation.pooled], dim=-1))
        if self.other is not None:
            extra_actions = self.other(state_vector).view(batch, self.extra, self.numbers)
            actions = torch.cat([actions, extra_actions], dim=1)
        return actions.float(), self.state(state_vector).float()

    def __call__(self, observation: EncodedQueue) -> tuple[Tensor, Tensor]:
        """As `forward`, with its return type."""
        outputs: tuple[Tensor, Tensor] = super().__call__(observation)
        return outputs


class ActorCritic(nn.Module):
    """Logits of the actions and the value of the state."""

    provenance: dict[str, Any]
    """Origin; of networks that were loaded from a file."""

    def __init__(self, spec: ObservationSpecProtocol, body: FeatureExtractor, config: dict[str, Any]) -> None:
        super().__init__()
        self.spec, self.config = spec, config
        self.body = body
        self.outputs = OutputLayers(spec, body.width, 1, gain=0.01)  # the initial policy is nearly uniform

    def forward(self, observation: Observation) -> tuple[Tensor, Tensor]:
        """Logits (B, A), -inf where the mask forbids, and values (B,)."""
        actions, state = self.outputs(self.body(observation))
        return actions.squeeze(-1).masked_fill(observation["mask"] == 0, -torch.inf), state.squeeze(-1)

    def __call__(self, observation: Observation) -> tuple[Tensor, Tensor]:
        """As `forward`, with its return type."""
        outputs: tuple[Tensor, Tensor] = super().__call__(observation)
        return outputs

    def scores(self, observation: Observation) -> Tensor:
        """(B, A) larger is better; -inf where the mask forbids."""
        return self(observation)[0]


class DuelingQ(nn.Module):
    """Dueling Q network: state value plus the advantage of the action over the mean of the allowed actions.

    After Wang et al., "Dueling network architectures" (ICML 2016). With more than one atom it gives distributions of
    the return (Bellemare, Dabney and Munos, "A distributional perspective", ICML 2017) on `support`.
    """

    support: Tensor
    provenance: dict[str, Any]
    """Origin; of networks that were loaded from a file."""

    def __init__(
        self,
        spec: ObservationSpecProtocol,
        body: FeatureExtractor,
        config: dict[str, Any],
        *,
        noisy: bool = False,
        atoms: int = 1,
        span: tuple[float, float] = (-10.0, 10.0),
    ) -> None:
        super().__init__()
        self.spec, self.config, self.atoms = spec, config, atoms
        self.body = body
        self.outputs = OutputLayers(spec, body.width, atoms, gain=1.0, noisy=noisy)
        self.register_buffer("support", torch.linspace(*span, atoms), persistent=False)

    def forward(self, observation: Observation) -> Tensor:
        """Q (B, A), -inf where the mask forbids."""
        outputs = self._q_values(observation)
        values = outputs.squeeze(-1) if self.atoms == 1 else outputs.softmax(-1) @ self.support
        return values.masked_fill(observation["mask"] == 0, -torch.inf)

    def __call__(self, observation: Observation) -> Tensor:
        """As `forward`, with its return type."""
        outputs: Tensor = super().__call__(observation)
        return outputs

    def log_distribution(self, observation: Observation) -> Tensor:
        """(B, A, atoms) log-probability of each return in `support`."""
        return self._q_values(observation).log_softmax(-1)

    def scores(self, observation: Observation) -> Tensor:
        """(B, A) larger is better; -inf where the mask forbids."""
        return self(observation)

    def sample_noise(self, random: torch.Generator) -> None:
        """Sample new noise in the noisy layers, if there are any."""
        for module in self.modules():
            if isinstance(module, NoisyLinear):
                module.sample_noise(random)

    def _q_values(self, observation: Observation) -> Tensor:
        advantage, state = self.outputs(self.body(observation))
        allowed = (observation["mask"] != 0).to(advantage.dtype)[..., None]
        mean = (advantage * allowed).sum(1) / allowed.sum(1).clamp(min=1)
        return (state - mean)[:, None] + advantage


Network = ActorCritic | DuelingQ
"""A network with either head."""


class MaskedCategorical:
    """A categorical distribution from logits; an action with logit -inf is never sampled and adds no entropy.

    >>> choice = MaskedCategorical(torch.tensor([[0.0, 0.0, -torch.inf]]))
    >>> choice.probabilities.tolist(), round(choice.entropy().item(), 4)  # ln 2
    ([[0.5, 0.5, 0.0]], 0.6931)
    """

    def __init__(self, logits: Tensor) -> None:
        self.log_probabilities = logits.log_softmax(-1)
        """(B, A); -inf where the action is not allowed."""

    @property
    def probabilities(self) -> Tensor:
        """(B, A) probabilities."""
        return self.log_probabilities.exp()

    @property
    def finite(self) -> Tensor:
        """Log-probabilities with 0 for actions that are not allowed, as 0 x -inf would be NaN."""
        return self.log_probabilities.masked_fill(self.log_probabilities == -torch.inf, 0.0)

    def log_prob(self, actions: Tensor) -> Tensor:
        """(B,) log-probability of the taken actions."""
        return self.log_probabilities.gather(-1, actions[:, None]).squeeze(-1)

    def entropy(self) -> Tensor:
        """(B,) entropy, nats."""
        return -(self.probabilities * self.finite).sum(-1)

    def sample(self, random: torch.Generator) -> Tensor:
        """(B,) int64 actions, sampled with the given generator.

        By exponential races: of several exponential variables with rates p, each is the smallest with probability p.
        """
        exponentials = torch.empty_like(self.log_probabilities).exponential_(generator=random)
        return (self.log_probabilities - exponentials.clamp_(min=1e-30).log_()).argmax(-1)

    def greedy(self) -> Tensor:
        """(B,) int64, the most probable action; the first of equals."""
        return self.log_probabilities.argmax(-1)


def greedy_actions(network: Network, observation: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.int64]:
    """(B,) the best allowed action of each environment, by a network on any device; noise is switched off.

    >>> from kilowait.agents.networks import network
    >>> from kilowait.agents.networks.spec import LoadedSpec
    >>> agent = network(LoadedSpec(("length",), ("hour",), slots=2, choices=1, extra=0, graph=False))
    >>> tensors = {"jobs": [[[1.0], [2.0]]], "summary": [[0.0]], "mask": [[0, 1]]}
    >>> greedy_actions(agent, {name: np.array(rows, np.float32) for name, rows in tensors.items()}).tolist()
    [1]
    """
    device = next(network.parameters()).device
    tensors = {name: torch.from_numpy(array).to(device) for name, array in observation.items()}
    training = network.training
    network.eval()
    try:
        with torch.no_grad():
            scores = network.scores(tensors)
            # Scores may overflow: an allowed action must stay ahead of the others, whose score is -inf.
            limit = torch.finfo(scores.dtype).max
            bounded = scores.nan_to_num(nan=-limit, posinf=limit, neginf=-limit)
            allowed = bounded.masked_fill(tensors["mask"] == 0, -torch.inf)
            actions: npt.NDArray[np.int64] = allowed.argmax(-1).cpu().numpy()
            return actions
    finally:
        network.train(training)
