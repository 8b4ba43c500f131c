"""Unknown numbers: NaN in columns and sums, None where they are written down."""

from math import isfinite


def finite_or_none(value: float) -> float | None:
    """A plain float for JSON, tables and metrics; None for NaN and infinity."""
    return float(value) if isfinite(value) else None
