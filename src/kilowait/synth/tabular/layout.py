"""Layout of a table's columns (one-hot categories and scalars) in the input and output vectors of a network."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from kilowait.synth.tabular.known_values import Floats, Ints

__all__ = ["ColumnLayout", "Weights", "init_output_layer", "drawn", "load", "network_weights"]

Weights = dict[str, npt.NDArray[np.float32]]
"""Weights of a network, by name."""


class ColumnLayout:
    """Positions of each column in a vector: its scalar, where it has one, and then one number per category.

    A column with one category has no numbers for categories.
    """

    def __init__(self, sizes: Sequence[int], numbers: Sequence[bool]) -> None:
        self.columns = len(sizes)
        self.places: list[int] = []
        """Positions of the scalars."""
        self.place_columns = [column for column, number in enumerate(numbers) if number]
        self.kinds: list[slice] = []
        """Positions of the categories, of columns that have several."""
        self.kind_columns = [column for column, size in enumerate(sizes) if size > 1]
        self.width = 0
        for size, number in zip(sizes, numbers, strict=True):
            if number:
                self.places.append(self.width)
                self.width += 1
            if size > 1:
                self.kinds.append(slice(self.width, self.width + size))
                self.width += size
        self.sizes = [part.stop - part.start for part in self.kinds]
        """Indices of the columns in `kinds`."""

    def dense(self, kinds: Tensor, places: Tensor) -> Tensor:
        """Vectors for categories and scalars, (rows, columns) each."""
        rows = places.new_zeros(len(places), self.width)
        rows[:, self.places] = places[:, self.place_columns]
        firsts = torch.tensor([part.start for part in self.kinds], device=kinds.device)
        return rows.scatter_(1, kinds[:, self.kind_columns] + firsts, 1.0)

    def shares(self, kinds: Tensor) -> Tensor:
        """Category frequencies of the rows, concatenated by column; each column sums to 1."""
        counts = [
            torch.bincount(kinds[:, column], minlength=size)
            for column, size in zip(self.kind_columns, self.sizes, strict=True)
        ]
        return torch.cat([torch.zeros(0, device=kinds.device), *counts]) / len(kinds)

    def parts(self, places: Tensor, kinds: Sequence[Tensor]) -> tuple[Ints, Floats]:
        """Categories and scalars of all columns from network samples: scalars, and categories of `kind_columns`."""
        found_kinds = np.zeros((len(places), self.columns), np.int64)
        found_places = np.zeros((len(places), self.columns))
        found_places[:, self.place_columns] = places.double().cpu().numpy()
        for column, drawn in zip(self.kind_columns, kinds, strict=True):
            found_kinds[:, column] = drawn.cpu().numpy()
        return found_kinds, found_places


def drawn(logits: Tensor) -> Tensor:
    """Sample a category for each row from its logits."""
    ends = logits.softmax(1).cumsum(1)
    coin = torch.rand(len(logits), 1) * ends[:, -1:]
    return torch.searchsorted(ends, coin, right=True)[:, 0].clamp(max=logits.shape[1] - 1)


def init_output_layer(answer: nn.Linear, shares: Tensor) -> None:
    """Initialize an output layer to the category frequencies of the log."""
    with torch.no_grad():
        answer.weight *= 0.3
        answer.bias.copy_(torch.log(shares + 1e-5))


def network_weights(network: nn.Module) -> Weights:
    """The weights of a network."""
    return {name: values.cpu().numpy() for name, values in network.state_dict().items()}


def load(network: nn.Module, weights: Weights) -> None:
    """Load weights; a `ValueError` if they are of another network."""
    try:
        network.load_state_dict({name: torch.from_numpy(np.array(one)) for name, one in weights.items()})
    except RuntimeError as problem:
        raise ValueError(str(problem).splitlines()[0]) from None
