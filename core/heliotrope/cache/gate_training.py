"""Trains a session gate from switches that were replayed with both choices.

Imports LightGBM; runs where replays run, never in a picker.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import lightgbm
import numpy as np

from heliotrope.cache.gate import OFF, Gate
from heliotrope.cache.gate_features import FEATURE_NAMES, GateFeatures
from heliotrope.predict.forest import parse_forest

THRESHOLDS = (-0.4, -0.2, -0.1, -0.05, 0.0, 0.1, 0.2, math.inf)
"""δ to choose from on held-out sessions; infinite: no gate."""
MIN_SWITCHES = 100
"""Fewer teach nothing: the gate stays off."""


@dataclass(frozen=True, slots=True)
class Switch:
    """A proposed switch of which a replay saw both outcomes."""

    features: GateFeatures
    moved_grams: float
    """Realised over this turn and the session's next, if it has one, after following the proposal."""
    stayed_grams: float
    """The same after staying."""
    scale_grams: float
    """Estimates of this turn at both placements, added: what the label is relative to."""

    @property
    def advantage(self) -> float:
        """The label: what staying saved, relative to the scale."""
        return (self.moved_grams - self.stayed_grams) / self.scale_grams


def train_gate(switches: Sequence[Switch], seed: int, *, trees: int = 60, leaves: int = 16) -> Gate:
    """A gate that is off until a threshold is chosen (`dataclasses.replace`); the same input gives the same gate.

    Switches count by their grams, so that what is learned is carbon and not how often.

    Args:
        switches: of sessions that no threshold will be chosen on.
        seed: of LightGBM.
        trees: boosting rounds.
        leaves: of each tree.
    """
    usable = [s for s in switches if s.scale_grams > 0.0 and math.isfinite(s.advantage)]
    if len(usable) < MIN_SWITCHES:
        return OFF
    weights = np.array([s.scale_grams for s in usable])
    parameters: dict[str, Any] = {
        "objective": "regression",
        "num_leaves": leaves,
        "max_depth": 5,
        "learning_rate": 0.1,
        "min_data_in_leaf": int(np.clip(len(usable) // 100, 10, 50)),
        "lambda_l2": 1.0,
        "seed": seed,
        "num_threads": 1,
        "deterministic": True,
        "force_row_wise": True,
        "verbosity": -1,
    }
    data = lightgbm.Dataset(
        np.array([s.features.values for s in usable]),
        np.clip([s.advantage for s in usable], -2.0, 2.0),
        weight=weights / weights.mean(),
        feature_name=list(FEATURE_NAMES),
        free_raw_data=True,
    )
    booster = lightgbm.train(parameters, data, num_boost_round=trees)
    head, end, _ = booster.model_to_string().partition("\nend of trees\n")
    text = str(head + end)
    return Gate(math.inf, text, parse_forest(text, FEATURE_NAMES, "gate"), trained_on=len(usable))
