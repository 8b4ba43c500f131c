"""What joules and reserved hardware cost the climate, the water and the purse.

Operational emissions are E·PUE·CI (paper sustainable-inference-control-plane, equation 3). Embodied emissions are the
Green Software Foundation's SCI, M = TE × TR/EL × RR/ToR: the emissions of making the hardware, by the time that it was
reserved over its lifetime and the share of it that was reserved. `reserved_seconds` below is time × share, of one
replica. Water is WUE × IT energy; WUE is defined on IT energy, so PUE does not enter.

Unknown is None and stays None: nothing here takes a missing factor for zero.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from heliotrope.carbon.signal import EmissionFactor, Reading, SignalType
from heliotrope.errors import HeliotropeError
from heliotrope.units import Number, grams_co2e, hours_from_seconds, kwh_from_joules, liters_from_it_kwh


class MixedGramsError(HeliotropeError):
    """Grams that mean different things were about to be added."""


class Boundary(StrEnum):
    """Whose energy operational grams are of."""

    ACCELERATORS = "accelerators"
    """Of the accelerators alone: the host's share is unknown."""
    ACCELERATORS_AND_HOST = "accelerators+host"
    HOST = "host"
    """Of the host alone: its energy that no request carries."""


@dataclass(frozen=True, slots=True)
class Embodied:
    """Manufacturing emissions of one replica: its accelerators and its share of the host, spread over their life."""

    grams_co2e: float
    lifetime_seconds: float


@dataclass(frozen=True, slots=True)
class Draw:
    """What a request, or anything else that is accounted for, took; None where unknown."""

    accelerator_joules: float | None
    host_joules: float | None
    reserved_seconds: float | None
    """Time × the share of a replica's accelerators."""

    @property
    def boundary(self) -> Boundary:
        """Whose energy `it_joules` is."""
        return Boundary.ACCELERATORS if self.host_joules is None else Boundary.ACCELERATORS_AND_HOST

    @property
    def it_joules(self) -> float | None:
        """IT energy; without the host's where that is unknown."""
        if self.accelerator_joules is None:
            return None
        return self.accelerator_joules + (self.host_joules or 0.0)


@dataclass(frozen=True, slots=True)
class Factors:
    """What a site and its hardware cost per unit; None where nobody states it."""

    pue: float | None = None
    wue_l_per_kwh: float | None = None
    electricity_price_per_kwh: float | None = None
    """Per kWh that the facility draws."""
    price_per_hour: float | None = None
    """Of one replica."""
    embodied: Embodied | None = None


@dataclass(frozen=True, slots=True)
class Basis:
    """What operational grams rest on."""

    signal_type: SignalType
    emission_factor: EmissionFactor
    source: str
    estimated: bool | None
    """None: the source does not say."""
    intensity_g_per_kwh: float
    age_seconds: float
    """Of the intensity when the energy was priced."""
    pue: float
    boundary: Boundary


@dataclass(frozen=True, slots=True)
class Operational:
    """Grams with everything that has to be said beside them."""

    grams_co2e: float
    basis: Basis


@dataclass(frozen=True, slots=True)
class Footprint:
    """The vector of costs.

    Currencies are those of the factors. The two costs stand apart because a rent often includes the electricity.
    """

    it_joules: float | None
    operational: Operational | None
    embodied_grams_co2e: float | None
    water_liters: float | None
    hardware_cost: float | None
    electricity_cost: float | None


@dataclass(frozen=True, slots=True)
class OperationalTotal:
    """The sum of grams of one meaning."""

    grams_co2e: float
    signal_type: SignalType
    emission_factor: EmissionFactor
    boundary: Boundary
    sources: tuple[str, ...]
    estimated: bool | None
    """True if any part is; None if none is known to be and some source does not say."""
    oldest_seconds: float
    lowest_pue: float
    highest_pue: float


def footprint(draw: Draw, factors: Factors, reading: Reading | None, now_unix_s: float) -> Footprint:
    """Price what was drawn.

    Args:
        draw: what was drawn.
        factors: of the place and hardware.
        reading: the intensity that held meanwhile; None: unknown, or too old to be believed.
        now_unix_s: the time of pricing, for the intensity's age.
    """
    joules, reserved = draw.it_joules, draw.reserved_seconds
    f = factors
    return Footprint(
        it_joules=joules,
        operational=_operational(joules, draw.boundary, f.pue, reading, now_unix_s),
        embodied_grams_co2e=None
        if f.embodied is None or reserved is None
        else embodied_grams(f.embodied.grams_co2e, f.embodied.lifetime_seconds, reserved),
        water_liters=None if f.wue_l_per_kwh is None or joules is None else water_liters(joules, f.wue_l_per_kwh),
        hardware_cost=None
        if f.price_per_hour is None or reserved is None
        else hardware_cost(f.price_per_hour, reserved),
        electricity_cost=None
        if f.electricity_price_per_kwh is None or f.pue is None or joules is None
        else electricity_cost(joules, f.pue, f.electricity_price_per_kwh),
    )


def embodied_grams(total_grams_co2e: Number, lifetime_seconds: Number, reserved_seconds: Number) -> Number:
    """gCO2e of making the hardware that falls on `reserved_seconds` (time × share) of it."""
    return total_grams_co2e / lifetime_seconds * reserved_seconds


def water_liters(it_joules: Number, wue_l_per_kwh: Number) -> Number:
    """Litres that the site uses for this IT energy."""
    return liters_from_it_kwh(kwh_from_joules(it_joules), wue_l_per_kwh)


def hardware_cost(price_per_hour: Number, reserved_seconds: Number) -> Number:
    """Price of `reserved_seconds` (time × share) of a replica."""
    return price_per_hour * hours_from_seconds(reserved_seconds)


def electricity_cost(it_joules: Number, pue: Number, price_per_kwh: Number) -> Number:
    """Price of the energy that the facility draws for this IT energy."""
    return kwh_from_joules(it_joules) * pue * price_per_kwh


def total_operational(parts: Iterable[Operational]) -> OperationalTotal | None:
    """The sum of operational grams; None of nothing.

    Raises:
        MixedGramsError: if signal types, emission factors or boundaries differ.
    """
    parts = list(parts)
    if not parts:
        return None
    bases = [part.basis for part in parts]
    first = bases[0]
    for basis in bases:
        for name in ("signal_type", "emission_factor", "boundary"):
            one, other = getattr(first, name), getattr(basis, name)
            if one != other:
                raise MixedGramsError(f"grams of {name.replace('_', ' ')} {one} and {other} are not added")
    return OperationalTotal(
        grams_co2e=sum(part.grams_co2e for part in parts),
        signal_type=first.signal_type,
        emission_factor=first.emission_factor,
        boundary=first.boundary,
        sources=tuple(sorted({basis.source for basis in bases})),
        estimated=any_estimated(basis.estimated for basis in bases),
        oldest_seconds=max(basis.age_seconds for basis in bases),
        lowest_pue=min(basis.pue for basis in bases),
        highest_pue=max(basis.pue for basis in bases),
    )


def any_estimated(flags: Iterable[bool | None]) -> bool | None:
    """True if any is; None if none is and one is not known; else False."""
    seen = set(flags)
    return True if True in seen else None if None in seen else False


def _operational(
    it_joules: float | None, boundary: Boundary, pue: float | None, reading: Reading | None, now_unix_s: float
) -> Operational | None:
    if it_joules is None or pue is None or reading is None:
        return None
    return Operational(
        grams_co2e(it_joules, pue, reading.intensity_g_per_kwh),
        Basis(
            signal_type=reading.signal_type,
            emission_factor=reading.emission_factor,
            source=reading.source,
            estimated=reading.estimated,
            intensity_g_per_kwh=reading.intensity_g_per_kwh,
            age_seconds=now_unix_s - reading.measured_unix_s,
            pue=pue,
            boundary=boundary,
        ),
    )
