"""`random-picker`: every endpoint that passed the filters is as likely."""

from random import Random

from heliotrope.decide.candidates import FloatColumn
from heliotrope_epp.plugins.interface import LlmRequest, Options, Pick
from heliotrope_epp.plugins.pickers.ranking import PickerParameters

RANDOM_PICKER = "random-picker"


class RandomPicker:
    """Draws without replacement and without looking at the scores."""

    def __init__(self, parameters: PickerParameters, random: Random) -> None:
        self._count = parameters.max_num_of_endpoints
        self._random = random

    def pick(
        self,
        request: LlmRequest,  # noqa: ARG002
        options: Options,
        scores: FloatColumn,  # noqa: ARG002
        now_unix_s: float,  # noqa: ARG002
    ) -> Pick:
        """Choose at random."""
        return Pick(tuple(self._random.sample(options, min(self._count, len(options)))))
