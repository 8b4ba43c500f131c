"""What a recorded request drew, as a span of its own: the measurement comes after the request's span has ended."""

from dataclasses import dataclass

from opentelemetry.sdk.trace import ReadableSpan

from heliotrope.units import joules_from_millijoules
from heliotrope_epp.outcomes.energy import MeteredInterval, RequestEnergy
from heliotrope_epp.outcomes.finished import FinishedRequest
from heliotrope_epp.outcomes.trace import TraceContext
from heliotrope_epp.tracing import attributes as a
from heliotrope_epp.tracing.export import SpanQueue
from heliotrope_epp.tracing.spans import Interval, SpanMaker, Values

NAN = float("nan")


@dataclass(frozen=True, slots=True)
class EnergyRecord:
    """A measurement of a recorded request."""

    parent: TraceContext
    request: FinishedRequest
    energy: RequestEnergy

    @property
    def span_count(self) -> int:
        """One."""
        return 1

    def spans(self, make: SpanMaker) -> list[ReadableSpan]:
        """The energy's span, over the time that was metered."""
        request, energy = self.request, self.energy
        measured = joules_from_millijoules(float(energy.millijoules))
        estimated = NAN if request.expected is None else request.expected.energy_joules
        values: Values = {
            a.MEASURED_JOULES: measured,
            a.ESTIMATED_JOULES: estimated,
            a.ESTIMATION_ERROR: (estimated - measured) / measured if measured > 0.0 else NAN,
            a.IDLE_JOULES: float(energy.idle_joules),
            a.HOST_JOULES: float(energy.host_joules),
            a.COVERAGE: float(energy.coverage),
            a.ACCELERATOR_SECONDS: float(energy.accelerator_seconds),
            a.ENERGY_ENDPOINTS: tuple(share.endpoint for share in energy.engines) or None,
            a.ENERGY_ENDPOINT_JOULES: tuple(
                joules_from_millijoules(float(share.millijoules)) for share in energy.engines
            )
            or None,
            a.ENDPOINT: request.endpoint,
            a.REGION: request.region,
            a.VARIANT: request.variant,
        }
        return [make.make(a.ENERGY, self.parent, Interval(energy.start_unix_s, energy.end_unix_s), values)[0]]


class EnergySpans:
    """A `Sink` that adds the measurement to the request's trace. Keeps nothing but the queue's bounded entries."""

    def __init__(self, queue: SpanQueue) -> None:
        self._queue = queue

    def measured(self, request: FinishedRequest, energy: RequestEnergy | None) -> None:
        """Queue the span of a recorded and metered request."""
        if request.trace is not None and energy is not None:
            self._queue.put(EnergyRecord(request.trace, request, energy))

    def metered(self, interval: MeteredInterval) -> None:
        """Intervals of endpoints belong to no trace."""
