"""Non-negative least squares with a prior, for fits of few coefficients to few points of relative error."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from heliotrope.nonnegative import nonnegative as nonnegative

Array = NDArray[np.float64]
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Prior:
    """What is believed of each coefficient before any measurement: a mean and a standard deviation, same units."""

    mean: Array
    deviation: Array
    basis: Array | None = None
    """Square, no entry below 0: coefficients are basis·y with y ≥ 0, which bounds some by others. None: only by 0."""

    def drawn(self, random: np.random.Generator) -> "Prior":
        """The same belief about a mean drawn from it (cut at 0): how a bootstrap varies what no measurement tells."""
        return replace(self, mean=np.maximum(0.0, random.normal(self.mean, self.deviation)))


@dataclass(frozen=True, slots=True)
class Fit:
    """Coefficients and how much the measurements, rather than the prior, decided them."""

    coefficients: Array
    loss: float
    """Half the sum of squares: measurement errors over noise, and distances from the prior over its deviation."""
    prior_share: Array
    """Posterior over prior variance per coefficient: 1 = the measurements say nothing of it, 0 = they alone decide."""


def fit(design: Array, target: Array, noise: Array, prior: Prior) -> Fit:
    """Fit target ≈ design·x, x ≥ 0, where `noise` is the relative standard error of each target.

    The result is the most likely x for independent normal errors of noise × target and the normal prior, cut at 0 and
    where its basis ends.
    """
    weights = 1.0 / (noise * np.abs(target))
    # In units of the prior's deviation every column has a comparable size.
    data = design * weights[:, None] * prior.deviation
    matrix = np.vstack([data, np.eye(len(prior.mean))])
    wanted = np.concatenate([target * weights, prior.mean / prior.deviation])
    if prior.basis is None:
        scaled = nonnegative(matrix, wanted)
    else:
        basis = prior.basis * prior.deviation / prior.deviation[:, None]
        scaled = basis @ nonnegative(matrix @ basis, wanted)
    variance = np.diag(np.linalg.inv(matrix.T @ matrix))
    residual = matrix @ scaled - wanted
    return Fit(scaled * prior.deviation, float(residual @ residual) / 2, variance)


def mape(predicted: Array, measured: Array) -> float:
    """Mean absolute relative error (0.05 = 5 %)."""
    return float(np.mean(np.abs(predicted - measured) / np.abs(measured)))


def held_out(
    items: Sequence[Item],
    group: Callable[[Item], str],
    fit_and_predict: Callable[[Sequence[Item], Sequence[Item]], Array],
) -> Array:
    """Predictions of every item by a fit that has not seen the item's group (leave one group out), in item order."""
    predictions = np.zeros(len(items))
    for name in sorted({group(item) for item in items}):
        inside = [index for index, item in enumerate(items) if group(item) == name]
        outside = [item for item in items if group(item) != name]
        predictions[inside] = fit_and_predict(outside, [items[index] for index in inside])
    return predictions


def bootstrap(
    items: Sequence[Item],
    group: Callable[[Item], str],
    estimate: Callable[[Sequence[Item], np.random.Generator], Array],
    resamples: int,
    seed: int,
) -> tuple[Array, Array]:
    """The 5 % and 95 % quantiles of an estimate when items are drawn anew within their groups, with replacement.

    The estimate gets the generator too, to vary its prior.
    """
    random = np.random.default_rng(seed)
    names = sorted({group(item) for item in items})
    members = [[item for item in items if group(item) == name] for name in names]
    estimates = np.array(
        [
            estimate([pool[index] for pool in members for index in random.integers(0, len(pool), len(pool))], random)
            for _ in range(resamples)
        ]
    )
    low, high = np.quantile(estimates, [0.05, 0.95], axis=0)
    return low, high
