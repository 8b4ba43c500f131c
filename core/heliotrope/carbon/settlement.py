"""Settlement: stored joules priced anew, with revised or other signals, beside the grams recorded at run time.

Control uses the newest value that is there; accounts are settled later against revised history (paper cleanest-grid
§3-4). Average and marginal intensity answer different questions: what was recorded with another kind of signal than the
one that settles is told, and never compared or added.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heliotrope.carbon.bootstrap import (
    FloatMatrix,
    FloatVector,
    Interval,
    block_bootstrap,
    block_length,
    relative_change,
)
from heliotrope.carbon.footprint import MixedGramsError
from heliotrope.carbon.series import Series
from heliotrope.carbon.signal import EmissionFactor, SignalType
from heliotrope.errors import InvalidInputError
from heliotrope.units import grams_co2e

IntVector = NDArray[np.int64]
BoolVector = NDArray[np.bool_]

UNKNOWN_REGION = ""
"""Region of energy of which nobody says where it was drawn; no signal prices it."""
NOTHING_JOULES = 0.001
"""Energy below a counter's resolution: the balance of what was given and taken back. A change of it means nothing."""
MAX_TIME_ROWS = 20_000
"""Rows of time of a bootstrap; slots of a longer span are joined to at most as many."""


class SignalKind(NamedTuple):
    """What grams mean; grams of two kinds are never compared or added."""

    signal_type: SignalType
    emission_factor: EmissionFactor


@dataclass(frozen=True, slots=True)
class RegionSignal:
    """A region's series with which energy is settled."""

    series: Series
    kind: SignalKind
    source: str


@dataclass(frozen=True, slots=True)
class StoredEnergy:
    """Columns of a ledger; position i of each is one row."""

    slot_unix_s: IntVector
    """Start of the slot of time over which the energy was drawn."""
    slot_seconds: IntVector
    regions: Sequence[str]
    """`UNKNOWN_REGION` where unknown."""
    groups: Sequence[str]
    """Arm of requests, line of other energy."""
    it_joules: FloatVector
    pue: FloatVector
    """NaN where unknown."""
    recorded_grams: FloatVector
    """NaN where the energy was not priced at run time."""
    recorded_kinds: Sequence[SignalKind | None]
    """None where it was not priced."""

    def __len__(self) -> int:
        return len(self.it_joules)


@dataclass(frozen=True, slots=True)
class Settled:
    """One part of the ledger. The two `compared` grams are of the same joules."""

    region: str | None
    """None: of all regions."""
    group: str | None
    """None: of all arms and lines."""
    it_joules: float
    settled_grams: float
    settled_joules: float
    """Priced now."""
    estimated_joules: float
    """Of those, priced with a value that its source had estimated or does not call measured."""
    unpriced_joules: float
    """No series covers them, or their PUE is unknown."""
    recorded_grams: float
    """Priced at run time with the kind of signal that settles."""
    other_kind_joules: float
    """Priced at run time with another kind."""
    compared_joules: float
    compared_settled_grams: float
    compared_recorded_grams: float
    change: Interval
    """Settled over recorded grams of the compared joules, less one."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """All of it."""

    kind: SignalKind
    sources: Mapping[str, str]
    """By region."""
    total: Settled
    regions: tuple[Settled, ...]
    groups: tuple[Settled, ...]
    missing_regions: tuple[str, ...]
    """With energy and without a series."""
    time_row_seconds: int
    block_seconds: int
    """Length of the bootstrap's blocks."""


def settle(
    stored: StoredEnergy,
    signals: Mapping[str, RegionSignal],
    *,
    seed: int = 0,
    resamples: int = 10_000,
    confidence: float = 0.95,
) -> Settlement:
    """Price stored energy with the mean intensity of each slot.

    Raises:
        InvalidInputError: without energy or signals, or for a signal of a region that the energy does not know.
        MixedGramsError: if the signals are of several kinds.
    """
    if not len(stored):
        raise InvalidInputError("", "there is no energy to settle")
    kind = _one_kind(signals)
    regions = np.asarray(stored.regions, dtype=np.str_)
    known = set(np.unique(regions).tolist())
    for name in signals:
        if name not in known:
            held = ", ".join(sorted(known - {UNKNOWN_REGION})) or "none"
            raise InvalidInputError(name, f"no energy was drawn in a region of that name; there are: {held}")
    intensity, estimated = _intensities(stored, regions, signals)
    priced = _Priced(
        stored=stored,
        settled_grams=grams_co2e(stored.it_joules, stored.pue, intensity),
        estimated=estimated,
        same_kind=np.array([each == kind for each in stored.recorded_kinds], dtype=np.bool_),
        rows=_time_rows(stored),
        bootstrap=_Bootstrap(seed, resamples, confidence),
    )
    groups = np.asarray(stored.groups, dtype=np.str_)
    everything = np.ones(len(stored), dtype=np.bool_)
    return Settlement(
        kind=kind,
        sources={name: signal.source for name, signal in signals.items()},
        total=priced.part(everything, None, None),
        regions=tuple(priced.part(regions == name, name, None) for name in sorted(known)),
        groups=tuple(priced.part(groups == name, None, name) for name in sorted(set(groups.tolist()))),
        missing_regions=tuple(sorted(known - set(signals) - {UNKNOWN_REGION})),
        time_row_seconds=priced.rows.seconds,
        block_seconds=priced.rows.seconds * priced.rows.block,
    )


def intensity_over(series: Series, start_unix_s: int, seconds: int) -> tuple[float | None, bool | None]:
    """Mean intensity over a slot, None where the series does not cover it; and whether its source had estimated it."""
    mean = series.average(float(start_unix_s), float(start_unix_s + seconds))
    point = None if mean is None else series.at(float(start_unix_s))
    return mean, None if point is None else point.estimated


@dataclass(frozen=True, slots=True)
class _TimeRows:
    index: IntVector
    """Row of time of each row of the ledger."""
    count: int
    seconds: int
    block: int
    """Rows of a block."""


class _Bootstrap(NamedTuple):
    seed: int
    resamples: int
    confidence: float


@dataclass(frozen=True, slots=True)
class _Priced:
    stored: StoredEnergy
    settled_grams: FloatVector
    estimated: BoolVector
    same_kind: BoolVector
    rows: _TimeRows
    bootstrap: _Bootstrap

    def part(self, chosen: BoolVector, region: str | None, group: str | None) -> Settled:
        s = self.stored
        priced_now = np.isfinite(self.settled_grams) & chosen
        recorded = np.isfinite(s.recorded_grams) & chosen
        both = priced_now & recorded & self.same_kind
        return Settled(
            region=region,
            group=group,
            it_joules=float(s.it_joules[chosen].sum()),
            settled_grams=float(self.settled_grams[priced_now].sum()),
            settled_joules=float(s.it_joules[priced_now].sum()),
            estimated_joules=float(s.it_joules[priced_now & self.estimated].sum()),
            unpriced_joules=float(s.it_joules[chosen & ~priced_now].sum()),
            recorded_grams=float(s.recorded_grams[recorded & self.same_kind].sum()),
            other_kind_joules=float(s.it_joules[recorded & ~self.same_kind].sum()),
            compared_joules=float(s.it_joules[both].sum()),
            compared_settled_grams=float(self.settled_grams[both].sum()),
            compared_recorded_grams=float(s.recorded_grams[both].sum()),
            change=self._change(both),
        )

    def _change(self, both: BoolVector) -> Interval:
        values: FloatMatrix = np.zeros((self.rows.count, 2))
        np.add.at(values[:, 0], self.rows.index[both], self.settled_grams[both])
        np.add.at(values[:, 1], self.rows.index[both], self.stored.recorded_grams[both])
        b = self.bootstrap
        if abs(float(self.stored.it_joules[both].sum())) < NOTHING_JOULES:
            return Interval(float("nan"), float("nan"), float("nan"), b.confidence, 0)
        return block_bootstrap(
            values,
            relative_change,
            block_length=self.rows.block,
            resamples=b.resamples,
            seed=b.seed,
            confidence=b.confidence,
        )


def _one_kind(signals: Mapping[str, RegionSignal]) -> SignalKind:
    if not signals:
        raise InvalidInputError("signals", "give the series of at least one region")
    by_kind = {signal.kind: name for name, signal in signals.items()}
    if len(by_kind) > 1:
        said = ", ".join(f"{name}: {kind.signal_type} {kind.emission_factor}" for kind, name in by_kind.items())
        raise MixedGramsError(f"the regions' signals are of different kinds ({said}); settle with one kind at a time")
    return next(iter(by_kind))


def _intensities(
    stored: StoredEnergy, regions: NDArray[np.str_], signals: Mapping[str, RegionSignal]
) -> tuple[FloatVector, BoolVector]:
    """Mean intensity over each row's slot, and whether it rests on values that are not known to be measured."""
    intensity, estimated = np.full(len(stored), np.nan), np.zeros(len(stored), dtype=np.bool_)
    for name, signal in signals.items():
        here = np.flatnonzero(regions == name)
        # A slot is its start and its length: one number that orders as both do, which is quicker to sort than pairs.
        base = int(stored.slot_seconds.max()) + 1
        distinct, position = np.unique(stored.slot_unix_s[here] * base + stored.slot_seconds[here], return_inverse=True)
        means, guessed = np.full(len(distinct), np.nan), np.zeros(len(distinct), dtype=np.bool_)
        for i, slot in enumerate(distinct.tolist()):
            mean, guess = intensity_over(signal.series, *divmod(slot, base))
            if mean is not None:
                means[i], guessed[i] = mean, guess is not False
        intensity[here], estimated[here] = means[position], guessed[position]
    return intensity, estimated


def _time_rows(stored: StoredEnergy) -> _TimeRows:
    first = int(stored.slot_unix_s.min())
    span = int((stored.slot_unix_s + stored.slot_seconds).max()) - first
    slot = int(stored.slot_seconds.max())
    seconds = slot * -(-span // (slot * MAX_TIME_ROWS))
    count = -(-span // seconds)
    return _TimeRows((stored.slot_unix_s - first) // seconds, count, seconds, block_length(count, float(seconds)))
