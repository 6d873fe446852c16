"""Tabular generators (CTGAN, CopulaGAN, TVAE, diffusion): jobs are sampled as independent rows and then ordered.

Networks are trained on the given device. Jobs are always sampled on the CPU, so that a folder and a seed give the same
jobs on every machine. `log_table` converts a log to rows and rows to jobs, `job_order` orders sampled rows in time, and
`encoding` encodes columns for networks. The networks and their training are in `ctgan`, `tvae` and `diffusion`.
Implemented from the papers, without their code.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from kilowait.files.array_file import StoredArrays
from kilowait.rng import stream
from kilowait.synth.generator import RowGenerator, State, check_settings, setting
from kilowait.synth.log_schema import Columns, Floats, Ints, prefixed
from kilowait.synth.sampler import SampleProgress
from kilowait.synth.tabular.encoding import TableEncoder, fit_encoder
from kilowait.synth.tabular.job_order import group_repeats, order_in_time, within_burst
from kilowait.synth.tabular.log_table import (
    CONTEXT_COLUMNS,
    REQUEST_COLUMNS,
    LogTable,
    fit_log_table,
    request_keys,
    value_limits,
)
from kilowait.synth.trainer import Training, check_torch, device_of, network_weights, restored_network, seeded

if TYPE_CHECKING:
    from kilowait.synth.tabular.network import ColumnLayout, TableNetwork

__all__ = [
    "CopulaGANSettings",
    "CopulaGanGenerator",
    "CtganGenerator",
    "CtganSettings",
    "DiffusionGenerator",
    "DiffusionSettings",
    "TvaeGenerator",
    "TvaeSettings",
]


MAX_WIDTH = 16_384


@dataclass(frozen=True)
class TabularSettings:
    """Hyperparameters shared by all tabular generators."""

    steps: int = setting(3000, least=1)
    """Number of training steps, independent of the length of the log."""
    batch: int = setting(500, least=10)
    """Batch size: rows per step."""
    width: int = setting(128, least=8, most=MAX_WIDTH)
    """Width of the hidden layers."""
    rate: float = setting(2e-3, above=0)
    """Learning rate."""
    kinds: int = setting(100, least=2)
    """Maximum values of a column that are categories of their own: users, or numbers with no more values."""

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True)
class CtganSettings(TabularSettings):
    """Hyperparameters of CTGAN. A step is several times as expensive as in the others, so there are fewer."""

    steps: int = setting(1000, least=1)
    rate: float = setting(5e-4, above=0)
    kinds: int = setting(50, least=2)


@dataclass(frozen=True)
class CopulaGANSettings(CtganSettings):
    """Hyperparameters of this generator."""


@dataclass(frozen=True)
class TvaeSettings(TabularSettings):
    """Hyperparameters of this generator."""

    latent: int = setting(32, least=1, most=MAX_WIDTH)
    """Dimension of the latent space."""
    likeness: float = setting(2.0, above=0)
    """Weight of the reconstruction loss relative to the KL divergence."""


@dataclass(frozen=True)
class DiffusionSettings(TabularSettings):
    """Hyperparameters of this generator."""

    batch: int = setting(256, least=10)
    width: int = setting(192, least=8, most=MAX_WIDTH)
    layers: int = setting(3, least=1, most=100)
    draw_steps: int = setting(20, least=1, most=1000)
    """Number of sampling steps from noise to data."""


# -- generators -----------------------------------------------------------------------------------


OVERSAMPLING = 1.2
"""Rows sampled per job, so that the last hours still have rows to choose from."""
MIN_ROWS = 600
"""Minimum number of rows sampled at a time."""
PILOT_JOBS, MAX_GAP_FACTOR = 4000, 20.0
"""Jobs of a pilot sample to calibrate the arrival rate, and the maximum factor on gaps."""


class TabularGenerator(RowGenerator):
    """Base class of tabular generators; subclasses name the network and its settings."""

    network_type: ClassVar[str]
    """Import path of the `TableNetwork`, which is imported with torch when it is needed."""
    numbers: ClassVar[str] = "modes"
    """Encoding of numbers, see `encoding`."""
    _encoding: TableEncoder
    _layout: ColumnLayout
    _log_table: LogTable
    _gap_factor: float
    """Factor on gaps outside bursts, calibrated to the log's jobs per day."""

    _network: TableNetwork

    def _learn(self, rows: Columns, progress: SampleProgress) -> None:
        device = device_of(self.device)
        import torch

        progress("coding", 0.0)
        self._log_table = fit_log_table(rows, self.schema)
        rng = stream(self.seed, f"synth.{self.name}")
        table = self._log_table.table(rows, self.schema)
        self._encoding = fit_encoder(table, numbers=self.numbers, max_categories=self.settings.kinds, rng=rng)
        self._layout = self._column_layout()
        categories, scalars = self._encoding.encode(table, rng)
        with seeded(self.seed, device):
            self._network = (
                self._network_type()
                .trained(
                    torch.as_tensor(categories, device=device),
                    torch.as_tensor(scalars, dtype=torch.float32, device=device),
                    self._layout,
                    self.settings,
                    Training(self.seed, device, progress, self.checkpoints),
                )
                .cpu()
            )
        self._gap_factor = 1.0
        self._gap_factor = self._estimated_gap_factor(rng)

    def _column_layout(self) -> ColumnLayout:
        from kilowait.synth.tabular.network import ColumnLayout

        return ColumnLayout(self._encoding.sizes, self._encoding.numbers)

    def _estimated_gap_factor(self, rng: np.random.Generator) -> float:
        """Estimate `_gap_factor` from a pilot sample."""
        schema = self.schema
        table = self._table(PILOT_JOBS, rng, lambda what, share: None)
        order, _ = order_in_time(table, PILOT_JOBS, schema.first_s, self._log_table.intensity, schema.zero_s, rng)
        gap_s, in_burst = table["gap_s"][order], within_burst(table)[order]
        target_s = PILOT_JOBS * schema.span_s / (schema.jobs - 1) - float(gap_s[in_burst].sum())
        total_s = float(gap_s[~in_burst].sum())
        return min(max(target_s / total_s, 1 / MAX_GAP_FACTOR), MAX_GAP_FACTOR) if total_s > 0 else 1.0

    def _table(self, jobs: int, rng: np.random.Generator, progress: SampleProgress) -> dict[str, Floats]:
        """Sample enough rows for `jobs` jobs."""
        with seeded(int(rng.integers(2**62)), device_of("cpu")):
            scalars, categories = self._network.sample_rows(max(int(OVERSAMPLING * jobs), MIN_ROWS), progress)
        table = self._encoding.decode(*self._layout.parts(scalars, categories), rng)
        table["gap_s"] = np.where(within_burst(table), 1.0, self._gap_factor) * table["gap_s"]
        return table

    def _group(self, jobs: int, first_s: float, rng: np.random.Generator, progress: SampleProgress) -> Columns:
        table = self._table(jobs, rng, progress)
        order, submit_s = order_in_time(table, jobs, first_s, self._log_table.intensity, self.schema.zero_s, rng)
        table = {name: column[order] for name, column in table.items()}
        user: Ints = table.get("user", np.zeros(jobs)).astype(np.int64)
        row_order, request = group_repeats(user, request_keys(table), table["repeats"].astype(np.int64), rng)
        for name in table:
            if name not in CONTEXT_COLUMNS:
                table[name] = table[name][request if name in REQUEST_COLUMNS else row_order]
        if self._log_table.whole[0]:
            submit_s = np.floor(submit_s)
        return {"submit_s": submit_s, **self._log_table.jobs(table, self.schema)}

    def _state(self) -> State:
        frame = {**self._log_table.state(), "stretch": np.array(self._gap_factor)}
        network = network_weights(self._network)
        return prefixed("frame", frame) | prefixed("encoding", self._encoding.state()) | prefixed("network", network)

    def _restore(self, state: StoredArrays) -> None:
        check_torch()
        frame = state.group("frame")
        self._gap_factor = float(frame.floats("stretch", minimum=1 / MAX_GAP_FACTOR, maximum=MAX_GAP_FACTOR))
        self._log_table = LogTable.restored(frame, self.schema)
        self._encoding = TableEncoder.restored(state.group("encoding"), value_limits(self.schema))
        self._layout = self._column_layout()
        network_type = self._network_type()
        self._network = restored_network(lambda: network_type(self._layout, self.settings), state.group("network"))

    def _network_type(self) -> type[TableNetwork]:
        module, _, class_name = self.network_type.partition(":")
        network_type: type[TableNetwork] = getattr(import_module(module), class_name)
        return network_type


class CtganGenerator(TabularGenerator):
    """CTGAN, see `ctgan`."""

    name = "ctgan"
    settings_type = CtganSettings
    network_type = "kilowait.synth.tabular.ctgan:GeneratorNetwork"

    def _restore(self, state: StoredArrays) -> None:
        super()._restore(state)
        common = state.group("network")["common"]
        ends = np.cumsum(self._layout.sizes, dtype=np.int64)[:-1]
        if (common < 0).any() or any(not part.sum() > 0 for part in np.split(common, ends) if len(part)):
            raise state.refuse("network.common", "holds no category frequencies")


class CopulaGanGenerator(CtganGenerator):
    """CTGAN on normal scores: the marginal distribution of each number is removed before, and restored after."""

    name = "copulagan"
    settings_type = CopulaGANSettings
    numbers = "scores"


class TvaeGenerator(TabularGenerator):
    """Tabular variational autoencoder, see `tvae`."""

    name = "tvae"
    settings_type = TvaeSettings
    network_type = "kilowait.synth.tabular.tvae:Decoder"


class DiffusionGenerator(TabularGenerator):
    """Tabular diffusion model, see `diffusion`."""

    name = "diffusion"
    settings_type = DiffusionSettings
    network_type = "kilowait.synth.tabular.diffusion:Denoiser"
    numbers = "scores"
