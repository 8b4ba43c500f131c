"""A routed request after its end, beside what was expected of it when its endpoint was chosen."""

from dataclasses import dataclass, field

from heliotrope.carbon.arms import Arm
from heliotrope.decide.candidates import FloatColumn
from heliotrope_epp.outcomes.trace import TraceContext
from heliotrope_epp.transport.interface import Cause

UNSTEERED = Arm.UNSTEERED.value
STEERED = Arm.STEERED.value
HOLDOUT = Arm.HOLDOUT.value


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
    """That answered: the one that a group's rules chose, else the one that was asked for."""
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
    ttft_slo_seconds: float | None = None
    """The promise that held for it: its own or the policy's; None: there was none."""
    tpot_slo_seconds: float | None = None
    asked_model: str | None = None
    """As the client named it; None: as `model`."""
    trace: TraceContext | None = field(default=None, repr=False)
    """Its span, if it is recorded."""

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

    @property
    def broke_slo(self) -> bool | None:
        """Whether its promise was broken; None where there was none, or where nobody can tell.

        An answer in one piece must come by when a streamed one would have ended. A server's error breaks the promise;
        a client's, and a client that left, say nothing about it.
        """
        if self.ttft_slo_seconds is None or self.tpot_slo_seconds is None:
            return None
        if not self.succeeded:
            return True if self.status is not None and self.status >= 500 else None
        if self.streaming and self.first_s is not None:
            if self.first_s - self.dispatched_s > self.ttft_slo_seconds:
                return True
            if self.output_tokens is None:
                return None
            return self.tpot_seconds is not None and self.tpot_seconds > self.tpot_slo_seconds
        if self.output_tokens is None:
            return None
        limit = self.ttft_slo_seconds + max(self.output_tokens - 1, 0) * self.tpot_slo_seconds
        return self.ended_s - self.dispatched_s > limit
