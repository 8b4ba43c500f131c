"""Pictures as PNG in base64, so that a report needs no other file."""

import base64
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from heliotrope.carbon.bootstrap import Interval
from heliotrope_sim.reproduce.row import PERCENT


def new_figure(width: float = 9.0, height: float = 4.0) -> Any:
    """An empty figure; nothing global is touched."""
    return Figure(figsize=(width, height), layout="constrained")


def png_base64(figure: Any) -> str:
    """The figure's bytes."""
    data = io.BytesIO()
    # Without a date, so that equal figures are equal bytes.
    figure.savefig(data, format="png", dpi=110, metadata={"Software": None})
    return base64.b64encode(data.getvalue()).decode()


def with_intervals(axes: Any, x: Sequence[Any], found: Sequence[Interval], **style: Any) -> None:
    """Points in percent with their intervals, where they have one."""
    middle = np.array([each.estimate for each in found]) * PERCENT
    low = np.array([each.low if each.known else each.estimate for each in found]) * PERCENT
    high = np.array([each.high if each.known else each.estimate for each in found]) * PERCENT
    # A percentile interval need not hold its estimate.
    error = np.maximum(np.stack([middle - low, high - middle]), 0.0)
    axes.errorbar(x, middle, error, **{"marker": "o", "capsize": 3} | style)
