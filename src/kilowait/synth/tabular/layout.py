"""Layout of a table's columns (one-hot categories and scalars) in the input and output vectors of a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from kilowait.files.array_file import StoredArrays
from kilowait.synth.tabular.known_values import Floats, Ints

__all__ = ["ColumnLayout", "init_output_layer", "sample_category", "load_network", "network_weights"]

Weights = dict[str, npt.NDArray[np.float32]]
"""Weights of a network, by name."""


class ColumnLayout:
    """Positions of each column in a vector: its scalar, if it has one, and then one number per category.

    A column with one category has no numbers for categories.
    """

    def __init__(self, sizes: Sequence[int], numbers: Sequence[bool]) -> None:
        self.columns = len(sizes)
        self.scalars: list[int] = []
        """Positions of the scalars."""
        self.scalar_columns = [column for column, number in enumerate(numbers) if number]
        self.categories: list[slice] = []
        """Positions of the categories, of columns that have several."""
        self.category_columns = [column for column, size in enumerate(sizes) if size > 1]
        self.width = 0
        for size, number in zip(sizes, numbers, strict=True):
            if number:
                self.scalars.append(self.width)
                self.width += 1
            if size > 1:
                self.categories.append(slice(self.width, self.width + size))
                self.width += size
        self.sizes = [part.stop - part.start for part in self.categories]
        """Number of categories of each of those columns."""

    def dense(self, categories: Tensor, scalars: Tensor) -> Tensor:
        """Vectors for categories and scalars, (rows, columns) each."""
        rows = scalars.new_zeros(len(scalars), self.width)
        rows[:, self.scalars] = scalars[:, self.scalar_columns]
        firsts = torch.tensor([part.start for part in self.categories], device=categories.device)
        return rows.scatter_(1, categories[:, self.category_columns] + firsts, 1.0)

    def shares(self, categories: Tensor) -> Tensor:
        """Category frequencies of the rows, concatenated by column; each column sums to 1."""
        counts = [
            torch.bincount(categories[:, column], minlength=size)
            for column, size in zip(self.category_columns, self.sizes, strict=True)
        ]
        return torch.cat([torch.zeros(0, device=categories.device), *counts]) / len(categories)

    def parts(self, scalars: Tensor, categories: Sequence[Tensor]) -> tuple[Ints, Floats]:
        """Categories and scalars of all columns from network samples: scalars, and categories of `category_columns`."""
        found_categories = np.zeros((len(scalars), self.columns), np.int64)
        found_scalars = np.zeros((len(scalars), self.columns))
        found_scalars[:, self.scalar_columns] = scalars.double().cpu().numpy()
        for column, sampled in zip(self.category_columns, categories, strict=True):
            found_categories[:, column] = sampled.cpu().numpy()
        return found_categories, found_scalars


def sample_category(logits: Tensor) -> Tensor:
    """Sample a category for each row from its logits."""
    cumulative = logits.softmax(1).cumsum(1)
    uniform = torch.rand(len(logits), 1) * cumulative[:, -1:]
    return torch.searchsorted(cumulative, uniform, right=True)[:, 0].clamp(max=logits.shape[1] - 1)


def init_output_layer(answer: nn.Linear, shares: Tensor) -> None:
    """Initialize an output layer to the category frequencies of the log."""
    with torch.no_grad():
        answer.weight *= 0.3
        answer.bias.copy_(torch.log(shares + 1e-5))


def network_weights(network: nn.Module) -> Weights:
    """The weights of a network."""
    return {name: values.cpu().numpy() for name, values in network.state_dict().items()}


def load_network(untrained: Callable[[], nn.Module], weights: StoredArrays) -> nn.Module:
    """A network with stored weights; an InputError if they are of another network.

    The shapes are compared before the network is built, so that it is not larger than the file of its weights.
    """
    with torch.device("meta"):
        shapes = {name: tuple(values.shape) for name, values in untrained().state_dict().items()}
    stored = weights.weights()
    for name, shape in shapes.items():
        if name not in stored or stored[name].shape != shape:
            found = stored[name].shape if name in stored else "missing"
            raise weights.refuse(name, f"is {found}; it must be of the shape {shape}")
    unknown = [name for name in stored if name not in shapes]
    if unknown:
        raise weights.refuse(unknown[0][:100], "is not part of the network")
    network = untrained().eval()
    network.load_state_dict({name: torch.from_numpy(values) for name, values in stored.items()})
    return network
