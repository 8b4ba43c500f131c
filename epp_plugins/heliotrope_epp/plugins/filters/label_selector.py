"""`label-selector-filter`: endpoints that a Kubernetes label selector matches."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from heliotrope_epp.plugins.interface import LlmRequest, Options
from heliotrope_epp.plugins.parameters import StrictModel

LABEL_SELECTOR_FILTER = "label-selector-filter"
BY_LABEL_SELECTOR = "by-label-selector"


class Operator(StrEnum):
    """How a requirement compares a label."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class Requirement(StrictModel):
    """One entry of `matchExpressions`."""

    key: str = Field(min_length=1)
    operator: Operator
    values: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _values_fit(self) -> Self:
        wanted = self.operator in (Operator.IN, Operator.NOT_IN)
        if wanted and not self.values:
            raise ValueError(f"operator {self.operator.value} needs values")
        if not wanted and self.values:
            raise ValueError(f"operator {self.operator.value} takes no values")
        return self

    def matches(self, labels: Mapping[str, str]) -> bool:
        """As Kubernetes does: `NotIn` also holds where the label is missing."""
        match self.operator:
            case Operator.IN:
                return labels.get(self.key) in self.values
            case Operator.NOT_IN:
                return labels.get(self.key) not in self.values
            case Operator.EXISTS:
                return self.key in labels
            case Operator.DOES_NOT_EXIST:
                return self.key not in labels


class LabelSelectorParameters(StrictModel):
    """A Kubernetes LabelSelector; an empty one matches everything."""

    match_labels: dict[str, str] = Field(default_factory=dict)
    match_expressions: tuple[Requirement, ...] = ()


class LabelSelectorFilter:
    """Keeps options whose labels satisfy every requirement."""

    def __init__(self, parameters: LabelSelectorParameters) -> None:
        self._labels = tuple(parameters.match_labels.items())
        self._expressions = parameters.match_expressions

    def filter(self, request: LlmRequest, options: Options) -> Options:  # noqa: ARG002
        """The options that pass, in order."""
        return options.kept([i for i, state in enumerate(options.states) if self._matches(state.endpoint.labels)])

    def _matches(self, labels: Mapping[str, str]) -> bool:
        return all(labels.get(key) == value for key, value in self._labels) and all(
            requirement.matches(labels) for requirement in self._expressions
        )
