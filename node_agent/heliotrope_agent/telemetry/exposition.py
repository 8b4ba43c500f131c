"""Prometheus' text format, for series whose names are not ours to choose.

prometheus_client adds `_total` to every counter's name, which DCGM's do not have, and turns whole numbers into floats,
which loses the end of large ones.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from heliotrope_agent.telemetry.power import EDGES_WATTS, PowerHistogram

Kind = Literal["counter", "gauge", "histogram"]
Labels = Mapping[str, str]


@dataclass(slots=True)
class Family:
    """The series of one name. Without any it is not shown: what is unknown is absent."""

    name: str
    kind: Kind
    text: str
    """What it is, in one line."""
    lines: list[str] = field(default_factory=list)

    def add(self, labels: str, value: float | None) -> None:
        """Add a series; None adds nothing. `labels` come from `label_text`."""
        if value is not None:
            self.lines.append(f"{self.name}{labels} {value}")

    def add_histogram(self, labels: Labels, histogram: PowerHistogram) -> None:
        """Add the buckets, sum and count of one histogram."""
        plain = label_text(labels)
        total = 0
        for edge, count in zip((*EDGES_WATTS, "+Inf"), histogram.counts, strict=True):
            total += count
            self.lines.append(f"{self.name}_bucket{label_text({**labels, 'le': str(edge)})} {total}")
        self.lines.append(f"{self.name}_sum{plain} {histogram.sum_watts}")
        self.lines.append(f"{self.name}_count{plain} {total}")


def label_text(labels: Labels) -> str:
    """Labels between their braces; those that are empty are left out."""
    parts = ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items() if value)
    return f"{{{parts}}}" if parts else ""


def page(families: Iterable[Family]) -> bytes:
    """The families as a page."""
    lines: list[str] = []
    for family in families:
        if family.lines:
            lines += (f"# HELP {family.name} {family.text}", f"# TYPE {family.name} {family.kind}", *family.lines)
    return ("\n".join(lines) + "\n").encode() if lines else b""


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
