"""What an attribute of a span is."""

from dataclasses import dataclass

Value = str | int | float | bool | tuple[str, ...] | tuple[float, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Attribute:
    """A name with what it means."""

    name: str
    type: str
    """As in OpenTelemetry: `string`, `int`, `double`, `boolean`, `string[]`, `double[]`."""
    unit: str
    """Empty for names, flags and pure numbers."""
    meaning: str
    example: str
