"""Rows of what lies behind the figures: why history is recomputed, and how far the grids are apart."""

from collections.abc import Sequence

import numpy as np

from heliotrope.units import SECONDS_PER_HOUR
from heliotrope_sim.reproduce.context.intensity import intensities
from heliotrope_sim.reproduce.context.measures import Arm, Ground, switches
from heliotrope_sim.reproduce.context.overall import Compared
from heliotrope_sim.reproduce.context.policies import CCAR
from heliotrope_sim.reproduce.context.profiles import MODEL_OF
from heliotrope_sim.reproduce.context.tasks import Stretch, workload_of
from heliotrope_sim.reproduce.row import PERCENT, Row


def cause_rows(c: Compared, stretches: Sequence[Stretch]) -> list[Row]:
    """Reported only."""
    changed, moved, stayed = recomputed_by_cause(c.ground, c.arms[CCAR])
    of_ours = "of the history that CCAR recomputes"
    return [
        Row(
            "recomputed/cause-model",
            "Recomputed because the model changed, CCAR",
            None,
            changed * PERCENT,
            "%",
            None,
            f"{of_ours}; no KV of another model helps",
        ),
        Row(
            "recomputed/cause-move",
            "Recomputed after a move with the same model, CCAR",
            None,
            moved * PERCENT,
            "%",
            None,
            f"{of_ours}; a pull could save this",
        ),
        Row(
            "recomputed/cause-lost",
            "Recomputed because the cache expired or was evicted, CCAR",
            None,
            stayed * PERCENT,
            "%",
            None,
            of_ours,
        ),
        Row(
            "grids/median-gap",
            "Dirtiest over cleanest region at one time, median",
            2.25,
            median_gap(stretches),
            "",
            None,
            "over the hours of the compared sessions, 2022; the paper's year is 2025",
        ),
    ]


def recomputed_by_cause(ground: Ground, arm: Arm) -> tuple[float, float, float]:
    """Shares of the recomputed history by what the turn did: changed its model, moved without, or stayed.

    Who stays recomputes what has expired or was evicted.
    """
    lost = np.nan_to_num(ground.history_tokens - arm.cached_tokens)
    same, model, moved = ground.session[1:] == ground.session[:-1], MODEL_OF[arm.deployment], switches(ground, arm)
    changed = np.zeros(len(moved), dtype=np.bool_)
    changed[1:] = same & (model[1:] != model[:-1])
    total = float(lost.sum()) or float("nan")
    parts = (changed, moved & ~changed, ~moved)
    a, b, c = (float(lost[each].sum()) / total for each in parts)
    return a, b, c


def median_gap(stretches: Sequence[Stretch]) -> float:
    """Of the dirtiest over the cleanest region's intensity at one time, over the hours with turns."""
    hours = {
        workload_of(s).first_hour + int(h)
        for s in stretches
        for h in np.unique(workload_of(s).arrival_seconds // SECONDS_PER_HOUR)
    }
    series = intensities()[[h % len(intensities()) for h in sorted(hours)]]
    return float(np.median(series.max(axis=1) / series.min(axis=1)))
