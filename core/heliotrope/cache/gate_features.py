"""What the session gate sees of a switch that is proposed: one row, all of it known at dispatch.

Features are ratios, shares, tokens and seconds, so that a gate does not depend on how large engines or grams are where
it was trained. NaN means unknown.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NAN = float("nan")


@dataclass(frozen=True, slots=True)
class Placement:
    """One side of a switch, as the estimate at dispatch has it: the proposal, or the placement of the last turn."""

    grams_co2e: float
    """Estimate for the turn there, with the history that is not cached there."""
    cached_tokens: float
    """Of the session's history, there."""
    intensity_g_per_kwh: float = NAN
    quality_margin: float = NAN
    """Quality of the model there over what the turn requires; at least 1 where it suffices."""
    kv_use: float = NAN
    """Share of the KV memory there that is taken, in [0, 1]."""
    free_share: float = NAN
    """Share of the places for sessions or sequences there that is free, in [0, 1]."""
    model: str = ""
    region: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """The turn of a session that is to be placed."""

    number: int
    """1 for the first."""
    new_tokens: float
    """Prompt tokens that are not history."""
    history_tokens: float
    expected_output_tokens: float
    seconds_since_last_turn: float = NAN
    """From the end of the last turn to now."""
    switches: float = NAN
    """How often the session has changed its placement."""
    turns_at_previous: float = NAN
    """Turns in a row that ended with the last one and were served at its placement."""


FEATURES = (
    ("turn_number", "turns"),
    ("new_tokens", "tokens"),
    ("history_tokens", "tokens"),
    ("expected_output_tokens", "tokens"),
    ("seconds_since_last_turn", "s"),
    ("switch_share", "switches per turn"),
    ("turns_at_previous", "turns"),
    ("log_grams_ratio", "ln(previous / proposal)"),
    ("log_intensity_ratio", "ln(previous / proposal)"),
    ("previous_cached_share", "share of the history"),
    ("proposal_cached_share", "share of the history"),
    ("previous_quality_margin", "quality / required"),
    ("proposal_quality_margin", "quality / required"),
    ("previous_kv_use", "share"),
    ("proposal_kv_use", "share"),
    ("previous_free_share", "share"),
    ("proposal_free_share", "share"),
    ("same_model", "0 or 1"),
    ("same_region", "0 or 1"),
)
"""Names and units, in the order of the row."""
FEATURE_NAMES = tuple(name for name, _ in FEATURES)


@dataclass(frozen=True, slots=True)
class GateFeatures:
    """One row; build it with `features_of`."""

    values: tuple[float, ...]
    """In the order of `FEATURES`."""

    def row(self) -> NDArray[np.float64]:
        """Shape (1, F)."""
        return np.array([self.values], dtype=np.float64)


def features_of(proposal: Placement, previous: Placement, turn: Turn) -> GateFeatures:
    """The row of a switch from `previous` to `proposal`."""
    return GateFeatures(
        (
            float(turn.number),
            turn.new_tokens,
            turn.history_tokens,
            turn.expected_output_tokens,
            turn.seconds_since_last_turn,
            turn.switches / turn.number if turn.number > 0 else NAN,
            turn.turns_at_previous,
            _log_ratio(previous.grams_co2e, proposal.grams_co2e),
            _log_ratio(previous.intensity_g_per_kwh, proposal.intensity_g_per_kwh),
            _share(previous.cached_tokens, turn.history_tokens),
            _share(proposal.cached_tokens, turn.history_tokens),
            previous.quality_margin,
            proposal.quality_margin,
            previous.kv_use,
            proposal.kv_use,
            previous.free_share,
            proposal.free_share,
            float(previous.model == proposal.model),
            float(previous.region == proposal.region),
        )
    )


def _log_ratio(a: float, b: float) -> float:
    return math.log(a / b) if 0.0 < a < math.inf and 0.0 < b < math.inf else NAN


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0.0 else NAN
