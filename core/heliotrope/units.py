"""Every unit conversion of the project, once.

Names say what goes in and what comes out. Anything that multiplies by 3.6e6 or 0.4536 elsewhere is a defect.
All functions are plain arithmetic, so they take floats and numpy arrays alike, and load no numpy where there are none.
"""

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Number = TypeVar("Number", float, "NDArray[np.float64]")

JOULES_PER_KWH = 3_600_000.0
MILLIJOULES_PER_JOULE = 1_000.0
MILLIWATTS_PER_WATT = 1_000.0
JOULES_PER_TERAJOULE = 1e12
GRAMS_PER_POUND = 453.59237
GRAMS_PER_KILOGRAM = 1_000.0
SECONDS_PER_HOUR = 3_600.0
SECONDS_PER_DAY = 86_400.0
MILLISECONDS_PER_SECOND = 1_000.0
NANOSECONDS_PER_SECOND = 1_000_000_000.0
BITS_PER_BYTE = 8.0


def joules_from_millijoules(millijoules: Number) -> Number:
    """J from mJ (NVML and DCGM energy counters count mJ)."""
    return millijoules / MILLIJOULES_PER_JOULE


def millijoules_from_joules(joules: Number) -> Number:
    """The mJ of a number of J."""
    return joules * MILLIJOULES_PER_JOULE


def watts_from_milliwatts(milliwatts: Number) -> Number:
    """W from mW (NVML's power and power limits are mW)."""
    return milliwatts / MILLIWATTS_PER_WATT


def milliwatts_from_watts(watts: Number) -> Number:
    """The mW of a number of W."""
    return watts * MILLIWATTS_PER_WATT


def kwh_from_joules(joules: Number) -> Number:
    """The kWh of a number of J."""
    return joules / JOULES_PER_KWH


def joules_from_kwh(kwh: Number) -> Number:
    """The J of a number of kWh."""
    return kwh * JOULES_PER_KWH


def grams_co2e(it_joules: Number, pue: Number, intensity_g_per_kwh: Number) -> Number:
    """Operational emissions in gCO2e of IT energy drawn behind a PUE from a grid of this intensity."""
    return it_joules / JOULES_PER_KWH * pue * intensity_g_per_kwh


def g_per_kwh_from_lb_per_mwh(lb_per_mwh: Number) -> Number:
    """The gCO2/kWh of a WattTime value, which is in lbCO2/MWh."""
    return lb_per_mwh * (GRAMS_PER_POUND / 1_000.0)


def g_per_kwh_from_kg_per_tj(kg_per_tj: Number) -> Number:
    """The g/kWh of a fuel whose emission factor is in kg per TJ of its heat, as the IPCC states them."""
    return kg_per_tj * (GRAMS_PER_KILOGRAM * JOULES_PER_KWH / JOULES_PER_TERAJOULE)


def liters_from_it_kwh(it_kwh: Number, wue_l_per_kwh: Number) -> Number:
    """Water in litres: WUE is defined on IT energy, so PUE does not enter."""
    return it_kwh * wue_l_per_kwh


def hours_from_seconds(seconds: Number) -> Number:
    """The hours of a number of seconds."""
    return seconds / SECONDS_PER_HOUR


def seconds_from_milliseconds(milliseconds: Number) -> Number:
    """The seconds of a number of milliseconds."""
    return milliseconds / MILLISECONDS_PER_SECOND


def milliseconds_from_seconds(seconds: Number) -> Number:
    """The milliseconds of a number of seconds."""
    return seconds * MILLISECONDS_PER_SECOND


def nanoseconds_from_seconds(seconds: Number) -> Number:
    """The nanoseconds of a number of seconds (OpenTelemetry's instants)."""
    return seconds * NANOSECONDS_PER_SECOND


def joules_from_watts(watts: Number, seconds: Number) -> Number:
    """The J that a constant power draws in a time."""
    return watts * seconds


def bits_from_bytes(size_bytes: Number) -> Number:
    """The bits of a number of bytes."""
    return size_bytes * BITS_PER_BYTE
