"""What all parts of a scenario have in common."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Name = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"^\S(.*\S)?$")]
Positive = Annotated[float, Field(gt=0.0)]
NonNegative = Annotated[float, Field(ge=0.0)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Percent = Annotated[float, Field(gt=0.0, le=100.0)]


class Strict(BaseModel):
    """Frozen, nothing unknown, numbers are finite."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class Slo(Strict):
    """The latency promise."""

    ttft_seconds: Positive
    """Longest time to first token, from arrival at the scheduler to the token's arrival there."""
    tpot_seconds: Positive
    """Longest mean time per output token after the first."""
