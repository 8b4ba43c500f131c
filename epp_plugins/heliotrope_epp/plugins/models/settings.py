"""How a picker predicts quality: places that only whoever runs it may name."""

from dataclasses import dataclass
from pathlib import Path

from heliotrope_epp.plugins.models.predictor import DEFAULT_CORE_WATTS
from heliotrope_epp.plugins.models.scorer import ScorerSettings


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """For policies that opt into other models."""

    quality_model: Path | None = None
    """Of the predictor `Learned`."""
    scorer: ScorerSettings | None = None
    """Of the predictor `Http`."""
    core_watts: float = DEFAULT_CORE_WATTS
    """Of one busy core of the picker's processor."""
