"""What the pickers share: their parameter, and the order by score."""

from random import Random

from pydantic import Field

from heliotrope.decide.candidates import FloatColumn
from heliotrope_epp.plugins.parameters import StrictModel


class PickerParameters(StrictModel):
    """llm-d's parameters of every picker."""

    max_num_of_endpoints: int = Field(default=1, ge=1)
    """The chosen endpoint and its fallbacks, together."""


def best_first(scores: FloatColumn, random: Random) -> list[int]:
    """Positions by falling score; equals in random order."""
    keys = [(score, random.random()) for score in scores.tolist()]
    return sorted(range(len(keys)), key=keys.__getitem__, reverse=True)
