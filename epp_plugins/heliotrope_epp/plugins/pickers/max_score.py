"""`max-score-picker`: the best score wins."""

from random import Random

from heliotrope.decide.candidates import FloatColumn
from heliotrope_epp.plugins.interface import LlmRequest, Options, Pick
from heliotrope_epp.plugins.pickers.ranking import PickerParameters, best_first

MAX_SCORE_PICKER = "max-score-picker"


class MaxScorePicker:
    """The options of the highest scores, best first; equals are drawn at random."""

    def __init__(self, parameters: PickerParameters, random: Random) -> None:
        self._count = parameters.max_num_of_endpoints
        self._random = random

    def pick(
        self,
        request: LlmRequest,  # noqa: ARG002
        options: Options,
        scores: FloatColumn,
        now_unix_s: float,  # noqa: ARG002
    ) -> Pick:
        """Choose by score."""
        order = best_first(scores, self._random)
        return Pick(tuple(options[i] for i in order[: self._count]))
