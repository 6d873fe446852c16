"""Causal transformer that generates the columns of a user's next job one after another, with pointer heads.

A causal transformer attends to the user's last `window` jobs, each the sum of its columns' embeddings. Every column of
the next job has an output head that also gets the columns before it. A head can output any code of its column, or point
to one of the user's last jobs or to a slot of the week's frequent-jobs list, whose value is then copied (A. See, P.
Liu, C. Manning, "Get to the point", ACL 2017). So repeated jobs are reproduced exactly, however rare their values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from kilowait.synth.transformer.calendar import LEVEL_CODES, SHARE_CODES

NEVER = -1e4
"""Logit of impossible outputs."""
KEY = 32
"""Width of the pointer keys."""
HEADS = 4


@dataclass(frozen=True)
class NetworkShape:
    """Dimensions of a network."""

    sizes: tuple[int, ...]
    """Codes of each column; the code after the last stands for "no job"."""
    conditions: tuple[int, ...]
    """Number of values of each condition."""
    copied: tuple[int, ...]
    """Columns of the frequent-jobs list."""
    width: int = 64
    layers: int = 2
    window: int = 32
    """Attention window in jobs."""
    recent: int = 8
    """Number of previous jobs that can be copied from."""
    frequent_jobs: int = 6
    """Slots of the frequent-jobs list."""


class TransformerLayer(nn.Module):
    """One layer of the transformer."""

    def __init__(self, shape: NetworkShape) -> None:
        super().__init__()
        width = shape.width
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.distance = nn.Parameter(torch.zeros(HEADS, shape.window))

    def parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of each head."""
        mixed = self.mixed(self.before(x)).unflatten(-1, (3, HEADS, -1))
        query, key, value = mixed.unbind(-3)
        return query, key, value

    def after(self, x: Tensor, attended: Tensor) -> Tensor:
        """Output of the layer, given the attention output."""
        x = x + self.out(attended)
        output: Tensor = x + self.narrow(functional.gelu(self.wide(self.between(x))))
        return output


class TransformerNetwork(nn.Module):
    """The model of one log."""

    firsts: Tensor
    condition_firsts: Tensor
    copy_mask: Tensor
    layers: Sequence[TransformerLayer]
    answer: Sequence[nn.Linear]

    def __init__(self, shape: NetworkShape) -> None:
        super().__init__()
        self.shape = shape
        width, columns, slots = shape.width, len(shape.sizes), shape.recent + shape.frequent_jobs
        codes = sum(size + 1 for size in shape.sizes)
        rows = torch.tensor([0, *(size + 1 for size in shape.sizes)]).cumsum(0)
        self.register_buffer("firsts", rows[:-1], persistent=False)
        condition_rows = torch.tensor([0, *shape.conditions]).cumsum(0)
        self.register_buffer("condition_firsts", condition_rows[:-1], persistent=False)
        self.job = nn.Embedding(codes, width)
        """Embedding of a previous job, by its columns."""
        self.now = nn.Embedding(codes, width)
        """Embedding of a column of the generated job."""
        self.condition = nn.Embedding(sum(shape.conditions), width)
        self.share, self.level = nn.Embedding(SHARE_CODES, width), nn.Embedding(LEVEL_CODES, width)
        for table in (self.job, self.now, self.condition, self.share, self.level):
            nn.init.normal_(table.weight, std=0.3)
        self.layers = nn.ModuleList(TransformerLayer(shape) for _ in range(shape.layers))  # type: ignore[assignment]
        self.last = nn.LayerNorm(width)
        self.key, self.value = nn.Linear(width, KEY), nn.Linear(width, width)
        scale = 1 / math.sqrt(width)
        self.look = nn.Parameter(scale * torch.randn(columns, width, KEY))
        self.look_bias = nn.Parameter(torch.zeros(columns, slots))
        self.hidden = nn.Parameter(scale * torch.randn(columns, width, width))
        self.hidden_bias = nn.Parameter(torch.zeros(columns, 1, width))
        self.point = nn.Parameter(scale * torch.randn(columns, width, KEY))
        self.point_bias = nn.Parameter(torch.full((columns, slots), -1.0))
        self.answer = nn.ModuleList(nn.Linear(width, size) for size in shape.sizes)  # type: ignore[assignment]
        mask = torch.zeros(columns, slots)
        mask[[column for column in range(columns) if column not in shape.copied], shape.recent :] = NEVER
        self.register_buffer("copy_mask", mask, persistent=False)

    def job_vector(self, codes: Tensor) -> Tensor:
        """Jobs by the codes of their columns, (..., columns) to (..., width)."""
        return self.job(codes + self.firsts).sum(-2)  # type: ignore[no-any-return]

    def condition_vector(self, codes: Tensor) -> Tensor:
        """Embedding of the conditions."""
        return self.condition(codes + self.condition_firsts).sum(-2)  # type: ignore[no-any-return]

    def frequent_jobs_vector(self, frequent_jobs: Tensor, share: Tensor, level: Tensor) -> Tensor:
        """Embedding of frequent jobs."""
        jobs = self.job(frequent_jobs + self.firsts[list(self.shape.copied)]).sum(-2)
        return jobs + self.share(share) + self.level(level)  # type: ignore[no-any-return]

    def attend(self, x: Tensor, mask: Tensor, distance: Tensor) -> Tensor:
        """Run the transformer over full sequences; `mask` is the attention mask."""
        for layer in self.layers:
            query, key, value = (part.transpose(1, 2) for part in layer.parts(x))
            bias = layer.distance[:, distance].masked_fill(~mask[:, None], NEVER)
            attended = functional.scaled_dot_product_attention(query, key, value, attn_mask=bias)
            x = layer.after(x, attended.transpose(1, 2).flatten(2))
        return self.last(x)  # type: ignore[no-any-return]

    def head_outputs(
        self, state: Tensor, keys: Tensor, values: Tensor, available: Tensor, columns: slice
    ) -> tuple[Tensor, Tensor]:
        """Outputs of the heads of some columns for states (columns, jobs, width), and pointer logits.

        Returns hidden states, which `self.answer` turns into logits of codes, and pointer logits (jobs,
        columns, slots).
        """
        unavailable = torch.where(available, 0.0, NEVER)[:, None]
        transposed_keys = keys.transpose(1, 2)
        queries = torch.bmm(state, self.look[columns]).transpose(0, 1)
        weight = torch.bmm(queries, transposed_keys) / math.sqrt(KEY) + self.look_bias[columns] + unavailable
        attended = torch.bmm(weight.softmax(-1), values).transpose(0, 1)
        hidden = functional.gelu(torch.baddbmm(self.hidden_bias[columns], state + attended, self.hidden[columns]))
        pointer_logits = torch.bmm(torch.bmm(hidden, self.point[columns]).transpose(0, 1), transposed_keys) / math.sqrt(
            KEY
        )
        return hidden, pointer_logits + (self.point_bias + self.copy_mask)[columns] + unavailable
