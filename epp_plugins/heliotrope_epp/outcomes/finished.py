"""A routed request after its end, beside what was expected of it when its endpoint was chosen."""

from dataclasses import dataclass, field

from heliotrope.decide.candidates import FloatColumn
from heliotrope_epp.transport.interface import Cause

UNSTEERED = "unsteered"
"""Arm of a request that no enforced policy decided on."""
STEERED = "policy"
"""Arm of a request that went where an enforced policy sent it."""
HOLDOUT = "holdout"
"""Arm of a request that an enforced policy kept blind to carbon, so that savings are measured."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What the decision expected at the endpoint that was used; NaN where unknown."""

    ttft_seconds: float
    tpot_seconds: float
    service_seconds: float
    energy_joules: float
    """The share that is expected to be attributed to the request: comparable with what is measured."""
    energy_relative_error: float
    batch: float
    """At which a decision shares energy and embodied carbon."""
    intensity_g_per_kwh: float
    grams_co2e: float
    water_liters: float
    cost: float


@dataclass(frozen=True, slots=True)
class FinishedRequest:
    """Everything that sinks may know of a request. Never its text.

    Times named `_s` are monotonic, `_unix_s` are Unix seconds.
    """

    request_id: str
    model: str
    tenant: str
    """The fairness id that came with the request; empty without one."""
    request_class: str
    """Stratum of the holdout."""
    arm: str
    """`UNSTEERED`, `STEERED` or `HOLDOUT`."""
    policy: str | None
    endpoint: str
    variant: str | None
    region: str | None
    streaming: bool
    dispatched_s: float
    first_s: float | None
    """First piece of the answer's body."""
    last_s: float | None
    ended_s: float
    dispatched_unix_s: float
    ended_unix_s: float
    status: int | None
    cause: Cause
    believed_prompt_tokens: int
    """Counted from the body before any engine saw it."""
    believed_cached_tokens: float
    expected_output_tokens: float
    prompt_tokens: int | None
    """As the engine counted; None: it did not say. So for the next two."""
    cached_tokens: int | None
    output_tokens: int | None
    expected: Expected | None
    features: FloatColumn | None = field(default=None, repr=False)
    """The row that models saw for the chosen endpoint (`heliotrope.predict.features`)."""

    @property
    def succeeded(self) -> bool:
        """Whether the whole answer arrived with status 200."""
        return self.status == 200 and self.cause is Cause.COMPLETE

    @property
    def ttft_seconds(self) -> float | None:
        """From dispatch to the first piece of a streamed answer; None for others."""
        if not self.streaming or self.first_s is None or not self.succeeded:
            return None
        return self.first_s - self.dispatched_s

    @property
    def tpot_seconds(self) -> float | None:
        """Mean time per output token after the first of a streamed answer; None for others."""
        if self.first_s is None or self.last_s is None or not self.streaming or not self.succeeded:
            return None
        if self.output_tokens is None or self.output_tokens < 2:
            return None
        return (self.last_s - self.first_s) / (self.output_tokens - 1)
