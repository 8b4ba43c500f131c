"""`by-label`: deprecated in llm-d for `label-selector-filter`."""

from typing import Self

from pydantic import Field, model_validator

from heliotrope_epp.plugins.filters.labels import LabelFilter
from heliotrope_epp.plugins.parameters import StrictModel

BY_LABEL = "by-label"


class ByLabelParameters(StrictModel):
    """llm-d's parameters of the type."""

    label: str = Field(min_length=1)
    valid_values: tuple[str, ...] = ()
    allows_no_label: bool = False

    @model_validator(mode="after")
    def _something_passes(self) -> Self:
        if not self.valid_values and not self.allows_no_label:
            raise ValueError("needs validValues, or allowsNoLabel: true")
        return self


def by_label(parameters: ByLabelParameters) -> LabelFilter:
    """Keeps endpoints by the value of one label."""
    return LabelFilter(parameters.label, parameters.valid_values, allow_missing=parameters.allows_no_label)
