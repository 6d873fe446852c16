"""Encoding of table columns for networks: a category per value, and for numbers also a scalar between about -1 and 1.

The most frequent names are categories of their own; rare ones share one category and are decoded by their frequency in
the log. So are numeric columns with few values. Other numbers have one of two forms:

- *modes* (L. Xu and others, NeurIPS 2019): a mixture of normal distributions is fitted to their logarithms, and a
  number is encoded as its component and its position in it. Users often request the same round values, such as 1 h or
  64 nodes, so each frequent value is a mode of its own.
- *scores*: the rank of the number as a quantile of the normal distribution; ties are broken at random.

Every output of a network is decoded to a value of the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self, TypeAlias

import numpy as np
from scipy.special import digamma, ndtr, ndtri, softmax

from kilowait.files.array_file import StoredArrays
from kilowait.synth.log_schema import Bools, Floats, Ints, StoredRecord, stored, whole_floats
from kilowait.synth.tabular.log_table import CATEGORICAL_COLUMNS, nearest, rank_subsample

CONCENTRATION = 1e-3
"""Concentration of the Dirichlet prior."""
MIN_COMPONENT_SHARE = 0.005
"""Minimum weight; lighter components are dropped."""
MAX_ITERATIONS = 100
TOLERANCE = 1e-4
"""Convergence tolerance of the weights per iteration."""
MAX_VALUES = 20_000
"""Maximum number of values used for the fit."""


@dataclass(frozen=True)
class GaussianMixture:
    """Components of a Gaussian mixture."""

    share: Floats
    mean: Floats
    deviation: Floats

    def responsibilities(self, values: Floats) -> Floats:
        """Posterior probability of each component for each value, (values, components)."""
        z_score = (values[:, None] - self.mean) / self.deviation
        responsibilities: Floats = softmax(np.log(self.share / self.deviation) - 0.5 * z_score**2, axis=1)
        return responsibilities

    def sample_components(self, values: Floats, rng: np.random.Generator) -> Ints:
        """A component for each value, sampled from the posterior."""
        cumulative = np.cumsum(self.responsibilities(values), axis=1)
        index = (rng.random(len(values))[:, None] * cumulative[:, -1:] >= cumulative).sum(axis=1)
        chosen: Ints = np.minimum(index, len(self.share) - 1).astype(np.int64)
        return chosen


def fit_mixture(values: Floats, *, max_components: int, rng: np.random.Generator) -> GaussianMixture:
    """Fit a mixture of at most `max_components` components to the values (at least one value).

    >>> rng = np.random.default_rng(0)
    >>> values = np.concatenate([rng.normal(0, 1, 600), rng.normal(20, 2, 400)])
    >>> mixture = fit_mixture(values, max_components=8, rng=rng)
    >>> mixture.share[mixture.mean < 10].sum().round(1)
    np.float64(0.6)
    """
    if len(values) > MAX_VALUES:
        values = rng.choice(values, MAX_VALUES, replace=False)
    overall_mean, variance = float(values.mean()), float(values.var())
    floor = 1e-3 * np.sqrt(variance) + 1e-6
    if variance < 1e-12:
        return GaussianMixture(np.ones(1), np.array([overall_mean]), np.array([floor]))
    # Initialize with quantile slices.
    slices = np.minimum(
        np.argsort(np.argsort(values, kind="stable")) * max_components // len(values), max_components - 1
    )
    weight = np.eye(max_components)[slices]
    share = np.zeros(max_components)
    mean, precision = np.zeros(max_components), np.ones(max_components)
    for _ in range(MAX_ITERATIONS):
        effective_counts = weight.sum(axis=0) + 1e-10
        component_mean = weight.T @ values / effective_counts
        scatter = np.einsum("vk,vk->k", weight, (values[:, None] - component_mean) ** 2)
        pseudo_counts = 1.0 + effective_counts
        mean = (overall_mean + effective_counts * component_mean) / pseudo_counts
        inverse = (
            variance / max_components**2
            + scatter
            + effective_counts / pseudo_counts * (component_mean - overall_mean) ** 2
        )
        precision = pseudo_counts / inverse
        alpha = CONCENTRATION + effective_counts
        log_precision = digamma(pseudo_counts / 2) + np.log(2.0) - np.log(inverse)
        log_share = digamma(alpha) - digamma(alpha.sum())
        squared_difference = (values[:, None] - mean) ** 2
        weight = softmax(
            log_share + 0.5 * log_precision - 0.5 * (1 / pseudo_counts + precision * squared_difference), axis=1
        )
        previous, share = share, alpha / alpha.sum()
        if np.abs(share - previous).sum() < TOLERANCE:
            break
    used = share >= MIN_COMPONENT_SHARE
    if not used.any():
        used = share == share.max()
    return GaussianMixture(share[used] / share[used].sum(), mean[used], np.maximum(1 / np.sqrt(precision[used]), floor))


# -- encoders of columns --------------------------------------------------------------------------


SCALAR_RANGE_SD = 4.0
"""Range of the scalar of a mode, in standard deviations."""
MODES = 10
"""Maximum number of components of a mixture."""
MIN_SHARE, MIN_ROWS = 0.005, 10
"""Minimum share and number of rows for a value to be a mode of its own."""


@dataclass(frozen=True)
class CategoryEncoder(StoredRecord):
    """Encoder of names, or of numbers with few values."""

    values: Floats = stored("floats", None, minimum="low", maximum="high", least=1, nan=True, ascending=True)
    """Common values, ascending; one category each. A single NaN where none is known."""
    rare: Floats = stored("floats", None, minimum="low", maximum="high", ascending=True)
    """Rare values; they share the last category."""
    rare_ends: Floats = stored("floats", "rare.0", minimum=0, maximum=1 + 1e-9, ascending=True)
    """Cumulative frequencies of the rare values."""
    number = False

    @classmethod
    def read(cls, state: StoredArrays, **known: float) -> Self:
        """The encoder in a state."""
        encoder = super().read(state, **known)
        if len(encoder.values) > 1 and np.isnan(encoder.values).any():
            raise state.refuse("values", "has the value nan; each must be a finite number")
        return encoder

    @property
    def size(self) -> int:
        """Number of categories."""
        return len(self.values) + (len(self.rare) > 0)

    def encode(self, values: Floats, rng: np.random.Generator) -> tuple[Ints, Floats]:
        """Categories; scalars are unused."""
        categories = np.minimum(np.searchsorted(self.values, values), len(self.values) - 1)
        categories = np.where(self.values[categories] == values, categories, self.size - 1)
        return categories.astype(np.int64), np.zeros(len(values))

    def decode(self, categories: Ints, scalars: Floats, rng: np.random.Generator) -> Floats:
        """The value of each category, or a random rare one."""
        values: Floats = self.values[np.minimum(categories, len(self.values) - 1)]
        if len(self.rare):
            rare_index = np.searchsorted(self.rare_ends, rng.random(len(categories)), side="right")
            values = np.where(
                categories == len(self.values), self.rare[np.minimum(rare_index, len(self.rare) - 1)], values
            )
        return values


@dataclass(frozen=True)
class ModeEncoder(StoredRecord):
    """Encoder of numbers as modes and positions in them; NaN, where there is any, is the last mode."""

    atoms: Floats = stored("floats", None, minimum="low", maximum="high", ascending=True)
    """Common values (atoms), ascending; one mode each."""
    share: Floats = stored("floats", None, minimum=0, maximum=1 + 1e-6, least=1)
    mean: Floats = stored("floats", "share.0", minimum=-1e3, maximum=1e3)
    deviation: Floats = stored("floats", "share.0", minimum=1e-12, maximum=1e6)
    """Mixture components of the other values, in logarithms; one mode each."""
    unit: Floats = stored("floats", 1, minimum=1e-300, maximum=1e30)
    """One value: numbers well below it count as 0."""
    kept: Floats = stored("floats", None, minimum="low", maximum="high", least=1, ascending=True)
    """Values that are not atoms, ascending."""
    missing: Bools = stored("flags", 1)
    """One value: whether there is NaN."""
    number = True

    @property
    def size(self) -> int:
        """Number of modes."""
        return len(self.atoms) + len(self.mean) + int(self.missing[0])

    def encode(self, values: Floats, rng: np.random.Generator) -> tuple[Ints, Floats]:
        """Modes, and positions in those that are not atoms."""
        mixture = GaussianMixture(self.share, self.mean, self.deviation)
        logs = np.log1p(np.maximum(np.nan_to_num(values), 0.0) / self.unit)
        component = mixture.sample_components(logs, rng)
        scalars = np.clip((logs - self.mean[component]) / (SCALAR_RANGE_SD * self.deviation[component]), -1, 1)
        categories = component + len(self.atoms)
        if len(self.atoms):
            atom = np.minimum(np.searchsorted(self.atoms, values), len(self.atoms) - 1)
            common = self.atoms[atom] == values
            categories, scalars = np.where(common, atom, categories), np.where(common, 0.0, scalars)
        unknown = np.isnan(values)
        return np.where(unknown, self.size - 1, categories), np.where(unknown, 0.0, scalars)

    def decode(self, categories: Ints, scalars: Floats, rng: np.random.Generator) -> Floats:
        """Atoms, or the nearest value of the log."""
        first = len(self.atoms)
        component = np.clip(categories - first, 0, len(self.mean) - 1)
        logs = self.mean[component] + SCALAR_RANGE_SD * self.deviation[component] * np.clip(scalars, -1, 1)
        values = nearest(self.unit * np.expm1(np.clip(logs, 0.0, 500.0)), self.kept)
        if first:
            values = np.where(categories < first, self.atoms[np.minimum(categories, first - 1)], values)
        if self.missing[0]:
            values = np.where(categories == self.size - 1, np.nan, values)
        return values


@dataclass(frozen=True)
class NormalScoreEncoder(StoredRecord):
    """Encoder of numbers as normal scores, scaled by `SCALAR_RANGE_SD`; NaN, if present, is a second category."""

    margin: Floats = stored("floats", None, minimum="low", maximum="high", least=1, ascending=True)
    """Values, ascending."""
    missing: Bools = stored("flags", 1)
    """One value: whether there is NaN."""
    number = True

    @property
    def size(self) -> int:
        """Number of categories."""
        return 1 + int(self.missing[0])

    def encode(self, values: Floats, rng: np.random.Generator) -> tuple[Ints, Floats]:
        """Whether unknown, and the score."""
        low = np.searchsorted(self.margin, values, side="left")
        high = np.maximum(np.searchsorted(self.margin, values, side="right"), low + 1)
        rank = low + rng.random(len(values)) * (high - low)
        scalars = ndtri(np.clip(rank / len(self.margin), 1e-6, 1 - 1e-6)) / SCALAR_RANGE_SD
        unknown = np.isnan(values)
        return unknown.astype(np.int64), np.where(unknown, 0.0, scalars)

    def decode(self, categories: Ints, scalars: Floats, rng: np.random.Generator) -> Floats:
        """The value of that rank."""
        rank = (ndtr(SCALAR_RANGE_SD * scalars) * len(self.margin)).astype(np.int64)
        values: Floats = self.margin[np.clip(rank, 0, len(self.margin) - 1)]
        return np.where(categories == 1, np.nan, values) if self.missing[0] else values


ColumnEncoder: TypeAlias = CategoryEncoder | ModeEncoder | NormalScoreEncoder
"""Encoder of one column: its number of categories, whether values also have a scalar, and `encode` and `decode`."""
FORMS: dict[str, type[ColumnEncoder]] = {"kinds": CategoryEncoder, "modes": ModeEncoder, "scores": NormalScoreEncoder}
VALUE_PARTS = ("values", "rare", "atoms", "kept", "margin")
"""Arrays of the encoders that hold values of the column."""


@dataclass(frozen=True)
class TableEncoder:
    """Encoders of all columns of a table, by name and in order."""

    coders: Mapping[str, ColumnEncoder]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of categories of each column."""
        return tuple(coder.size for coder in self.coders.values())

    @property
    def numbers(self) -> tuple[bool, ...]:
        """Whether each column has scalars."""
        return tuple(coder.number for coder in self.coders.values())

    def encode(self, table: dict[str, Floats], rng: np.random.Generator) -> tuple[Ints, Floats]:
        """Categories and scalars, (rows, columns) each."""
        encoded = [coder.encode(table[name], rng) for name, coder in self.coders.items()]
        return np.stack([categories for categories, _ in encoded], axis=1), np.stack(
            [scalars for _, scalars in encoded], axis=1
        )

    def decode(self, categories: Ints, scalars: Floats, rng: np.random.Generator) -> dict[str, Floats]:
        """Decode categories and scalars to a table."""
        return {
            name: coder.decode(categories[:, column], scalars[:, column], rng)
            for column, (name, coder) in enumerate(self.coders.items())
        }

    def state(self) -> dict[str, Floats | Bools]:
        """Plain arrays, in the order of columns."""
        return {
            f"{name}.{form}.{part}": values
            for name, coder in self.coders.items()
            for form, kind in FORMS.items()
            if isinstance(coder, kind)
            for part, values in coder.state().items()
        }

    @classmethod
    def restored(cls, state: StoredArrays, limits: Mapping[str, tuple[float, float, bool]]) -> Self:
        """Restore the encoders of columns with values in `limits`, see `log_table.value_limits`, from `state`."""
        coders: dict[str, ColumnEncoder] = {}
        for name, (low, high, whole) in limits.items():
            forms = [form for form in FORMS if len(state.group(f"{name}.{form}"))]
            if len(forms) != 1:
                raise state.refuse(name, "has no encoder, or several")
            coders[name] = FORMS[forms[0]].read(state.group(f"{name}.{forms[0]}"), low=low, high=high)
            for part, values in coders[name].state().items():
                if whole and part in VALUE_PARTS:
                    whole_floats(state, f"{name}.{forms[0]}.{part}", values)
        return cls(coders)


def fit_encoder(
    table: dict[str, Floats], *, numbers: str, max_categories: int, rng: np.random.Generator
) -> TableEncoder:
    """Fit the encoders of a table.

    Args:
        table: columns; NaN for what is not known.
        numbers: the form of numbers, `modes` or `scores`.
        max_categories: maximum number of values of a column that are categories of their own.
        rng: random generator.
    """
    coders: dict[str, ColumnEncoder] = {}
    for name, column in table.items():
        known = column[~np.isnan(column)]
        values, counts = np.unique(known, return_counts=True)
        if not len(known):
            coders[name] = CategoryEncoder(np.array([np.nan]), np.empty(0), np.empty(0))
        elif name in CATEGORICAL_COLUMNS or (len(values) <= max_categories and len(known) == len(column)):
            coders[name] = _category_encoder(values, counts, max_categories)
        elif numbers == "modes":
            coders[name] = _mode_encoder(column, max_categories, rng)
        else:
            coders[name] = NormalScoreEncoder(rank_subsample(np.sort(known)), np.array([len(known) < len(column)]))
    return TableEncoder(coders)


def _category_encoder(values: Floats, counts: Ints, max_categories: int) -> CategoryEncoder:
    order = np.argsort(-counts, kind="stable")
    common = np.sort(order[:max_categories])
    rare = np.sort(order[max_categories:])
    ends = np.cumsum(counts[rare]) / counts[rare].sum() if len(rare) else np.empty(0)
    return CategoryEncoder(values[common], values[rare], ends)


def _mode_encoder(column: Floats, max_atoms: int, rng: np.random.Generator) -> ModeEncoder:
    known = column[~np.isnan(column)]
    values, counts = np.unique(known, return_counts=True)
    frequent = np.argsort(-counts, kind="stable")[:max_atoms]
    atoms = np.sort(values[frequent[counts[frequent] >= max(MIN_SHARE * len(known), MIN_ROWS)]])
    rest = known[~np.isin(known, atoms)]
    if not len(rest):
        rest = known
    positive = rest[rest > 0]
    unit = float(np.quantile(positive, 0.05)) if len(positive) else 1.0
    mixture = fit_mixture(np.log1p(np.maximum(rest, 0.0) / unit), max_components=MODES, rng=rng)
    return ModeEncoder(
        atoms,
        mixture.share,
        mixture.mean,
        mixture.deviation,
        np.array([unit]),
        rank_subsample(np.unique(rest)),
        np.array([len(known) < len(column)]),
    )
