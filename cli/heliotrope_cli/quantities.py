"""Numbers as people read them; what is unknown says so and is never 0."""

from math import isfinite

UNKNOWN = "unknown"

_PREFIXES = ((1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"))


def scaled(value: float | None, unit: str, *, kilo: bool = True) -> str:
    """Three digits with the prefix that fits: 0.0123 g is 12.3 mg."""
    if value is None or not isfinite(value):
        return UNKNOWN
    if value == 0.0:
        return f"0 {unit}"
    prefixes = _PREFIXES if kilo else _PREFIXES[1:]
    factor, prefix = next((p for p in prefixes if abs(value) >= p[0]), prefixes[-1])
    digits = value / factor
    return f"{digits:.3g} {prefix}{unit}" if abs(digits) < 999.5 else f"{digits:,.0f} {prefix}{unit}"


def grams(value: float | None) -> str:
    """Of CO2e."""
    return scaled(value, "g")


def joules(value: float | None) -> str:
    """Of energy."""
    return scaled(value, "J")


def seconds(value: float | None) -> str:
    """Of time."""
    return scaled(value, "s", kilo=False)


def intensity(value: float | None) -> str:
    """Of a grid."""
    return UNKNOWN if value is None else f"{value:.4g} g/kWh"


def plain(value: float | None) -> str:
    """A number without a unit."""
    return UNKNOWN if value is None else f"{value:.4g}"


def with_error(text: str, relative_error: float | None) -> str:
    """An estimate with one standard deviation, where both are known."""
    return text if relative_error is None or text == UNKNOWN else f"{text} ±{relative_error:.0%}"


def shown(text: str, longest: int = 200) -> str:
    """A name from elsewhere, safe for a terminal."""
    clean = "".join(c if c.isprintable() else "�" for c in text[: longest + 1])
    return clean if len(clean) <= longest else f"{clean[:longest]}…"
