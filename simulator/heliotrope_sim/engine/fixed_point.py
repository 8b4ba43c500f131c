"""Whole numbers for time and energy: sums never lose a remainder and never depend on the order of addition.

Time is in nanoseconds and energy in picojoules because milliwatts × nanoseconds = picojoules exactly. A week of
a 2.8 kW engine is 1.7e21 pJ, which Python's integers hold without rounding.
"""

NANOSECONDS_PER_SECOND = 1_000_000_000
PICOJOULES_PER_JOULE = 1_000_000_000_000
PICOJOULES_PER_MILLIJOULE = 1_000_000_000
MILLIWATTS_PER_WATT = 1_000


def nanoseconds(seconds: float) -> int:
    """The whole ns nearest to a number of seconds."""
    return round(seconds * NANOSECONDS_PER_SECOND)


def seconds(nanoseconds: int) -> float:
    """The seconds of a number of ns."""
    return nanoseconds / NANOSECONDS_PER_SECOND


def picojoules(joules: float) -> int:
    """The whole pJ nearest to a number of joules."""
    return round(joules * PICOJOULES_PER_JOULE)


def joules(picojoules: int) -> float:
    """The joules of a number of pJ."""
    return picojoules / PICOJOULES_PER_JOULE


def milliwatts(watts: float) -> int:
    """The whole mW nearest to a number of watts."""
    return round(watts * MILLIWATTS_PER_WATT)
