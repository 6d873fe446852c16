"""Networks of table models, and the layout of a table's columns (one-hot categories and scalars) in their vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from kilowait.synth.log_schema import Floats, Ints
from kilowait.synth.sampler import SampleProgress
from kilowait.synth.trainer import Training


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


class TableNetwork(nn.Module):
    """Network of a table model: it is trained on a log's rows and samples new ones."""

    def __init__(self, layout: ColumnLayout, settings: Any) -> None:
        super().__init__()
        self.layout, self.settings = layout, settings

    @classmethod
    def trained(
        cls, categories: Tensor, scalars: Tensor, layout: ColumnLayout, settings: Any, training: Training
    ) -> Self:
        """Train a network on rows on the device of the training, with torch's global random state."""
        raise NotImplementedError

    def sample_rows(self, count: int, progress: SampleProgress) -> tuple[Tensor, list[Tensor]]:
        """Sample scalars and categories of `count` new rows, on the CPU."""
        raise NotImplementedError
