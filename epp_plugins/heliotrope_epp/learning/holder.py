"""Where decisions find the models of this moment."""

from heliotrope.predict.models import LearnedModels


class ModelHolder:
    """One attribute that is replaced whole: whoever has read it keeps a consistent set of models."""

    __slots__ = ("current",)

    def __init__(self, current: LearnedModels | None = None) -> None:
        self.current = LearnedModels() if current is None else current
