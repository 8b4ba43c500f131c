"""The Prometheus text format, and a histogram cheap enough to observe every token."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence


def escape(value: str) -> str:
    """A label value with its specials escaped."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def labels(values: Mapping[str, str]) -> str:
    """A label set without braces, to be extended or wrapped."""
    return ",".join(f'{name}="{escape(value)}"' for name, value in values.items())


def number(value: float) -> str:
    """A sample value; whole numbers keep all their digits."""
    return str(value) if isinstance(value, int) else repr(float(value))


class Histogram:
    """Cumulative buckets with a sum."""

    __slots__ = ("_bounds", "_counts", "_total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(float(b) for b in bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    @property
    def count(self) -> int:
        """How many values were observed."""
        return sum(self._counts)

    @property
    def total(self) -> float:
        """Their sum."""
        return self._total

    def observe(self, value: float, count: int = 1) -> None:
        """Count a value once or more."""
        self._counts[bisect_left(self._bounds, value)] += count
        self._total += value * count

    def lines(self, name: str, label_text: str) -> Iterable[str]:
        """The samples under a name and label set."""
        cumulative = 0
        for bound, count in zip((*self._bounds, None), self._counts, strict=True):
            cumulative += count
            le = "+Inf" if bound is None else repr(bound)
            yield f'{name}_bucket{{{label_text},le="{le}"}} {cumulative}'
        yield f"{name}_count{{{label_text}}} {cumulative}"
        yield f"{name}_sum{{{label_text}}} {number(self._total)}"


class Page:
    """A page of metrics under construction."""

    __slots__ = ("_lines",)

    def __init__(self) -> None:
        self._lines: list[str] = []

    def family(self, name: str, kind: str, help_text: str, samples: Iterable[tuple[str, float]]) -> None:
        """A counter or gauge: (label text, value) per sample."""
        self._lines += (f"# HELP {name} {help_text}", f"# TYPE {name} {kind}")
        self._lines += (f"{name}{{{label_text}}} {number(value)}" for label_text, value in samples)

    def histogram(self, name: str, help_text: str, label_text: str, histogram: Histogram) -> None:
        """A histogram."""
        self._lines += (f"# HELP {name} {help_text}", f"# TYPE {name} histogram")
        self._lines += histogram.lines(name, label_text)

    def text(self) -> str:
        """The page."""
        return "\n".join(self._lines) + "\n"
