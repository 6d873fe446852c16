"""Tabular workload generators: training on a log, and sampling of jobs.

Networks are trained on the given device. Jobs are always sampled on the CPU, so that a folder and a seed give the same
jobs on every machine.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from kilowait.files.array_file import StoredArrays
from kilowait.rng import stream
from kilowait.synth.device import check_torch, device_of, one_thread
from kilowait.synth.generator import State
from kilowait.synth.log_schema import Columns
from kilowait.synth.row_generator import RowGenerator
from kilowait.synth.sampler import SampleProgress
from kilowait.synth.tabular.encoding import TableEncoder, fit_encoder
from kilowait.synth.tabular.job_order import group_repeats, order_in_time, within_burst
from kilowait.synth.tabular.known_values import Floats, Ints
from kilowait.synth.tabular.log_table import (
    CONTEXT_COLUMNS,
    REQUEST_COLUMNS,
    LogTable,
    fit_log_table,
    request_keys,
    value_limits,
)
from kilowait.synth.tabular.settings import CopulaGANSettings, CtganSettings, DiffusionSettings, TvaeSettings

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.nn import Module

    from kilowait.synth.tabular.layout import ColumnLayout

__all__ = ["CopulaGanGenerator", "CtganGenerator", "DiffusionGenerator", "TvaeGenerator"]

OVERSAMPLING = 1.2
"""Rows sampled per job, so that the last hours still have rows to choose from."""
MIN_ROWS = 600
"""Minimum number of rows sampled at a time."""
PILOT_JOBS, MAX_GAP_FACTOR = 4000, 20.0
"""Jobs of a pilot sample to calibrate the arrival rate, and the maximum factor on gaps."""


class TabularGenerator(RowGenerator):
    """Base class of tabular generators; subclasses provide the network."""

    numbers: ClassVar[str] = "modes"
    """Encoding of numbers, see `encoding`."""
    _encoding: TableEncoder
    _layout: ColumnLayout
    _log_table: LogTable
    _gap_factor: float
    """Factor on gaps outside bursts, calibrated to the log's jobs per day."""

    _network: Module

    # -- implemented by each kind -------------------------------------------------------------------

    @abstractmethod
    def _untrained(self) -> Module:
        """The untrained network."""

    @abstractmethod
    def _trained(self, categories: Tensor, scalars: Tensor, progress: SampleProgress) -> Module:
        """Train the network on rows, on their device."""

    @abstractmethod
    def _rows(self, count: int, progress: SampleProgress) -> tuple[Tensor, list[Tensor]]:
        """Sample scalars and categories of new rows."""

    # -- shared by all kinds --------------------------------------------------------------------------

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
        with _seeded(self.seed, device):
            self._network = self._trained(
                torch.as_tensor(categories, device=device),
                torch.as_tensor(scalars, dtype=torch.float32, device=device),
                progress,
            ).cpu()
        self._gap_factor = 1.0
        self._gap_factor = self._estimated_gap_factor(rng)

    def _column_layout(self) -> ColumnLayout:
        from kilowait.synth.tabular.layout import ColumnLayout

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
        check_torch()
        import torch

        with _seeded(int(rng.integers(2**62)), torch.device("cpu")):
            scalars, categories = self._rows(max(int(OVERSAMPLING * jobs), MIN_ROWS), progress)
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
        from kilowait.synth.tabular.layout import network_weights

        state: dict[str, npt.NDArray[Any]] = {
            f"frame.{name}": values for name, values in self._log_table.state().items()
        }
        state["frame.stretch"] = np.array(self._gap_factor)
        state |= {f"encoding.{name}": values for name, values in self._encoding.state().items()}
        return state | {f"network.{name}": values for name, values in network_weights(self._network).items()}

    def _restore(self, state: StoredArrays) -> None:
        check_torch()
        from kilowait.synth.tabular.layout import load_network

        frame = state.group("frame")
        self._gap_factor = float(frame.floats("stretch", minimum=1 / MAX_GAP_FACTOR, maximum=MAX_GAP_FACTOR))
        self._log_table = LogTable.restored(frame, self.schema)
        self._encoding = TableEncoder.restored(state.group("encoding"), value_limits(self.schema))
        self._layout = self._column_layout()
        self._network = load_network(self._untrained, state.group("network"))


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Use one thread and a seed for torch's random state, which is restored afterwards."""
    import torch

    with one_thread(), torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


class CtganGenerator(TabularGenerator):
    """CTGAN, see `ctgan`."""

    name = "ctgan"
    settings_type = CtganSettings

    def _restore(self, state: StoredArrays) -> None:
        super()._restore(state)
        common = state.group("network")["common"]
        ends = np.cumsum(self._layout.sizes, dtype=np.int64)[:-1]
        if (common < 0).any() or any(not part.sum() > 0 for part in np.split(common, ends) if len(part)):
            raise state.refuse("network.common", "holds no category frequencies")

    def _untrained(self) -> Module:
        from kilowait.synth.tabular.ctgan import GeneratorNetwork

        return GeneratorNetwork(self._layout, self.settings.width)

    def _trained(self, categories: Tensor, scalars: Tensor, progress: SampleProgress) -> Module:
        from kilowait.synth.tabular.ctgan import train

        return train(categories, scalars, self._layout, self.settings, progress, self.checkpoints)

    def _rows(self, count: int, progress: SampleProgress) -> tuple[Tensor, list[Tensor]]:
        from kilowait.synth.tabular.ctgan import sample_rows

        return sample_rows(self._network, count)  # type: ignore[arg-type]


class CopulaGanGenerator(CtganGenerator):
    """CTGAN on normal scores: the marginal distribution of each number is removed before, and restored after."""

    name = "copulagan"
    settings_type = CopulaGANSettings
    numbers = "scores"


class TvaeGenerator(TabularGenerator):
    """Tabular variational autoencoder, see `tvae`."""

    name = "tvae"
    settings_type = TvaeSettings

    def _untrained(self) -> Module:
        from kilowait.synth.tabular.tvae import Decoder

        return Decoder(self._layout, self.settings.width, self.settings.latent)

    def _trained(self, categories: Tensor, scalars: Tensor, progress: SampleProgress) -> Module:
        from kilowait.synth.tabular.tvae import train

        return train(categories, scalars, self._layout, self.settings, progress, self.checkpoints)

    def _rows(self, count: int, progress: SampleProgress) -> tuple[Tensor, list[Tensor]]:
        from kilowait.synth.tabular.tvae import sample_rows

        return sample_rows(self._network, self._layout, count)  # type: ignore[arg-type]


class DiffusionGenerator(TabularGenerator):
    """Tabular diffusion model, see `diffusion`."""

    name = "diffusion"
    settings_type = DiffusionSettings
    numbers = "scores"

    def _untrained(self) -> Module:
        from kilowait.synth.tabular.diffusion import Denoiser

        return Denoiser(self._layout, self.settings.width, self.settings.layers)

    def _trained(self, categories: Tensor, scalars: Tensor, progress: SampleProgress) -> Module:
        from kilowait.synth.tabular.diffusion import train

        return train(categories, scalars, self._layout, self.settings, progress, self.checkpoints)

    def _rows(self, count: int, progress: SampleProgress) -> tuple[Tensor, list[Tensor]]:
        from kilowait.synth.tabular.diffusion import sample_rows

        return sample_rows(self._network, count, steps=self.settings.draw_steps, progress=progress)  # type: ignore[arg-type]
