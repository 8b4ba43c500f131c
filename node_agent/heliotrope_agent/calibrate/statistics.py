"""The few statistics of a calibration: a line through samples, an interval of a mean, a parabola's vertex.

All are pure functions on plain numbers, small enough to need no arrays.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

NORMAL_95 = 1.6449
"""95 % quantile of the normal distribution: both tails of a 90 % interval."""
_STUDENT_95 = (
    6.3138, 2.9200, 2.3534, 2.1318, 2.0150, 1.9432, 1.8946, 1.8595, 1.8331, 1.8125,
    1.7959, 1.7823, 1.7709, 1.7613, 1.7531, 1.7459, 1.7396, 1.7341, 1.7291, 1.7247,
    1.7207, 1.7171, 1.7139, 1.7109, 1.7081, 1.7056, 1.7033, 1.7011, 1.6991, 1.6973,
)  # fmt: skip
_CHI_SQUARE_95 = (
    3.841, 5.991, 7.815, 9.488, 11.070, 12.592, 14.067, 15.507, 16.919, 18.307,
    19.675, 21.026, 22.362, 23.685, 24.996, 26.296, 27.587, 28.869, 30.144, 31.410,
)  # fmt: skip
"""95 % quantiles of χ² with 1 to 20 degrees of freedom."""


def student_95(degrees: int) -> float:
    """The 95 % quantile of Student's t; beyond 30 degrees of freedom that of 30, which is wider by 3 % at most.

    Raises:
        ValueError: without a degree of freedom.
    """
    if degrees < 1:
        raise ValueError("a t distribution needs a degree of freedom")
    return _STUDENT_95[min(degrees, len(_STUDENT_95)) - 1]


def chi_square_95(degrees: int) -> float:
    """The 95 % quantile of χ²; beyond 20 degrees of freedom by Wilson and Hilferty's approximation.

    Raises:
        ValueError: without a degree of freedom.
    """
    if degrees < 1:
        raise ValueError("a χ² distribution needs a degree of freedom")
    if degrees <= len(_CHI_SQUARE_95):
        return _CHI_SQUARE_95[degrees - 1]
    part = 2.0 / (9.0 * degrees)
    return float(degrees * (1.0 - part + NORMAL_95 * math.sqrt(part)) ** 3)


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean."""
    return math.fsum(values) / len(values)


def variance(values: Sequence[float]) -> float:
    """The unbiased sample variance; of fewer than two values it is unknown, NaN."""
    if len(values) < 2:
        return math.nan
    middle = mean(values)
    return math.fsum((each - middle) ** 2 for each in values) / (len(values) - 1)


def half_width(values: Sequence[float]) -> float:
    """Half width of the 90 % interval of the mean of repeated measurements, by Student's t; NaN for a single one."""
    if len(values) < 2:
        return math.nan
    return student_95(len(values) - 1) * math.sqrt(variance(values) / len(values))


def pooled_relative_deviation(groups: Iterable[Sequence[float]]) -> float:
    """Standard deviation of one measurement as a share of its group's mean, pooled over groups; NaN if unknown.

    Repeats at different clocks scatter for the same reasons, so together they tell it better than three alone.
    """
    squares, degrees = 0.0, 0
    for values in groups:
        if len(values) >= 2:
            squares += variance(values) / mean(values) ** 2 * (len(values) - 1)
            degrees += len(values) - 1
    return math.sqrt(squares / degrees) if degrees else math.nan


def slope(x: Sequence[float], y: Sequence[float], weights: Sequence[float]) -> float:
    """Slope of the weighted least-squares line through points.

    For a quantity whose rate changes evenly over the points it is the mean rate, and each sample's error counts less
    than if the first and the last alone were taken.

    Raises:
        ValueError: if there are fewer than two points, x does not change, or a weight is not above 0.
    """
    if len(x) < 2 or not all(each > 0 for each in weights):
        raise ValueError("a line needs two points with weights")
    total = math.fsum(weights)
    x_mean = math.fsum(w * each for w, each in zip(weights, x, strict=True)) / total
    y_mean = math.fsum(w * each for w, each in zip(weights, y, strict=True)) / total
    spread = math.fsum(w * (each - x_mean) ** 2 for w, each in zip(weights, x, strict=True))
    if spread <= 0:
        raise ValueError("a line needs two different places")
    return math.fsum(w * (a - x_mean) * (b - y_mean) for w, a, b in zip(weights, x, y, strict=True)) / spread


def timing_half_width(times: Sequence[float], deviations: Sequence[float]) -> float:
    """Half width of the 90 % interval of a rate, as a share of it, from not knowing each point's time better.

    It is that of the line with weights 1 / deviation²; the deviations are independent.
    """
    weights = [1.0 / each**2 for each in deviations]
    middle = math.fsum(w * each for w, each in zip(weights, times, strict=True)) / math.fsum(weights)
    spread = math.fsum(w * (each - middle) ** 2 for w, each in zip(weights, times, strict=True))
    return NORMAL_95 / math.sqrt(spread) if spread > 0 else math.nan


@dataclass(frozen=True, slots=True)
class Parabola:
    """y = c0 + c1·(x − x0) + c2·(x − x0)², fitted by weighted least squares."""

    x0: float
    c0: float
    c1: float
    c2: float
    chi_square: float
    """Weighted squares of what it leaves."""
    degrees: int
    """Points beyond the three that any parabola meets."""
    covers: tuple[float, float]
    """Between which places it was fitted."""

    @property
    def points(self) -> int:
        """How many it was fitted to."""
        return self.degrees + 3

    def at(self, x: float) -> float:
        """Its value."""
        d = x - self.x0
        return self.c0 + self.c1 * d + self.c2 * d * d

    @property
    def minimum(self) -> float | None:
        """Where it is lowest; None where it is not convex."""
        return self.x0 - self.c1 / (2.0 * self.c2) if self.c2 > 0 else None

    @property
    def fits(self) -> bool:
        """Whether noise explains what it leaves (χ² at 95 %); a parabola through three points proves nothing."""
        return self.degrees >= 1 and self.chi_square <= chi_square_95(self.degrees)


def parabola(x: Sequence[float], y: Sequence[float], deviations: Sequence[float]) -> Parabola:
    """Fit points with known standard deviations.

    Raises:
        ValueError: if there are fewer than three different places, or a deviation is not above 0.
    """
    if len({*x}) < 3:
        raise ValueError("a parabola needs three different places")
    if not all(each > 0 for each in deviations):
        raise ValueError("a point without a standard deviation has no weight")
    x0 = mean(x)
    scale = max(abs(each - x0) for each in x)
    weights = [1.0 / each**2 for each in deviations]
    rows = [(1.0, (each - x0) / scale, ((each - x0) / scale) ** 2) for each in x]
    matrix = [
        [math.fsum(w * r[i] * r[j] for w, r in zip(weights, rows, strict=True)) for j in range(3)] for i in range(3)
    ]
    right = [math.fsum(w * r[i] * each for w, r, each in zip(weights, rows, y, strict=True)) for i in range(3)]
    a, b, c = _solve(matrix, right)
    fit = Parabola(x0, a, b / scale, c / scale**2, 0.0, len(x) - 3, (min(x), max(x)))
    left = math.fsum(w * (each - fit.at(at)) ** 2 for w, at, each in zip(weights, x, y, strict=True))
    return replace(fit, chi_square=left)


def _solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Gauss with the largest pivots, for the three normal equations."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    size = len(rows)
    for i in range(size):
        pivot = max(range(i, size), key=lambda row: abs(rows[row][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for below in range(i + 1, size):
            factor = rows[below][i] / rows[i][i]
            rows[below] = [a - factor * b for a, b in zip(rows[below], rows[i], strict=True)]
    found = [0.0] * size
    for i in reversed(range(size)):
        found[i] = (rows[i][size] - sum(rows[i][j] * found[j] for j in range(i + 1, size))) / rows[i][i]
    return found
