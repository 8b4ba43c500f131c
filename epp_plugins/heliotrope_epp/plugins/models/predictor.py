"""What a predictor of quality is asked, and the two that answer at once: the policy's table and a trained model."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from heliotrope.decide.quality import Group, Prediction, Predictor
from heliotrope.errors import InvalidInputError
from heliotrope.predict.task_class import TOKENS, task_class
from heliotrope.predict.text_quality import MAX_CHARACTERS, TextQuality, parse_text_quality
from heliotrope_epp.plugins.interface import LlmRequest

MAX_TASK_LENGTH = 63
DEFAULT_CORE_WATTS = 10.0
"""Of one busy core of the picker's processor; a server CPU of 350 W with 32 cores draws about this."""

Then = Callable[[Prediction], None]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CpuMeter:
    """Turns the processor time of a predictor into joules."""

    core_watts: float = DEFAULT_CORE_WATTS
    clock: Callable[[], float] = time.thread_time
    """Processor seconds of this thread."""

    def joules_since(self, start_s: float) -> float:
        """Spent since `clock` gave `start_s`."""
        return max(self.clock() - start_s, 0.0) * self.core_watts


class QualityPredictor(Protocol):
    """Predicts how good each model of a group would answer."""

    def predict(self, request: LlmRequest, group: Group, task: str, then: Then) -> None:
        """Call `then` once, at once or later on the loop, with what is known; never block, never raise.

        Args:
            request: what is to be served; its text must not be kept.
            group: the models.
            task: the class of the task.
            then: takes the prediction.
        """
        ...


def task_of(header: str | None, request: LlmRequest) -> str:
    """The class of a request's task: what its header says, else what its counts say."""
    named = (header or "").strip()
    return named[:MAX_TASK_LENGTH] if named else task_class(request.prompt, token_ids=request.token_ids)


def stated(group: Group, task: str) -> Mapping[str, float]:
    """The table's qualities."""
    return {member.model: member.stated_quality(task) for member in group.members}


class TablePredictor:
    """The qualities that the policy states."""

    def __init__(self, fallback: str | None = None) -> None:
        """`fallback`: why it stands in for another predictor."""
        self._fallback = fallback

    def predict(self, request: LlmRequest, group: Group, task: str, then: Then) -> None:  # noqa: ARG002 - the protocol
        """Answers at once."""
        then(Prediction(stated(group, task), Predictor.TABLE, task, self._fallback))


class LearnedPredictor:
    """A model that `heliotrope train quality` wrote; the table's value where it does not know a member."""

    def __init__(self, model: TextQuality) -> None:
        self._model = model

    def predict(self, request: LlmRequest, group: Group, task: str, then: Then) -> None:
        """Answers at once, within a millisecond: it reads at most 4 KiB of the prompt."""
        quality = dict(stated(group, task))
        if request.token_ids:
            then(Prediction(quality, Predictor.TABLE, TOKENS, "the prompt is no text"))
            return
        learned = self._model.predict(request.prompt)
        quality.update({model: value for model, value in learned.items() if model in quality})
        then(Prediction(quality, Predictor.LEARNED, task))


def load_predictor(path: Path | None) -> tuple[QualityPredictor, str | None]:
    """The predictor of a file and what is wrong with it; whatever that is, the table takes its place."""
    if path is None:
        return TablePredictor("no --quality-model is given"), None
    try:
        with path.open(encoding="utf-8", newline="") as file:
            model = parse_text_quality(file.read(MAX_CHARACTERS + 1))
    except (OSError, UnicodeDecodeError, InvalidInputError) as error:
        problem = f"quality model {path}: {error}; the policy's table holds"
        _log.warning("quality model not used", extra={"fields": {"problem": problem}})
        return TablePredictor("the quality model cannot be used"), problem
    _log.info("quality model", extra={"fields": {"models": model.models}})
    return LearnedPredictor(model), None
