"""The span of a request's placement in a region."""

from dataclasses import dataclass

from opentelemetry.sdk.trace import ReadableSpan

from heliotrope_epp.outcomes.trace import TraceContext
from heliotrope_epp.tracing import attributes as a
from heliotrope_epp.tracing import region_attributes as r
from heliotrope_epp.tracing.decision import Facts
from heliotrope_epp.tracing.spans import Interval, SpanMaker, Values


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the region tier sends a request, and why."""

    region: str | None
    """None: nowhere."""
    reason: str
    scheduler: str
    outcome: str
    fallback: str | None
    """Why greedy took the solver's place; None: it did not."""
    window: int
    window_requests: int
    window_seconds: float
    """That the request waited in it, the solver included."""
    solver_seconds: float
    gap: float
    state_age_seconds: float
    session: str | None = None
    """Why its session stayed or moved; None: it has none."""
    carbon_counts: bool = False
    held_seconds: float = 0.0
    """In the queue of deadlines."""


@dataclass(frozen=True, slots=True)
class PlacementRecord:
    """A placement of a recorded request. `offset_s` leads from its monotonic instants to Unix seconds."""

    parent: TraceContext
    offset_s: float
    started_s: float
    ended_s: float
    facts: Facts
    placement: Placement

    @property
    def span_count(self) -> int:
        """One."""
        return 1

    def spans(self, make: SpanMaker) -> list[ReadableSpan]:
        """The span, from the request's arrival to its departure."""
        interval = Interval(self.started_s + self.offset_s, self.ended_s + self.offset_s)
        error = self.placement.reason if self.placement.region is None else None
        return [make.make(a.PLACEMENT, self.parent, interval, self._values(), error=error)[0]]

    def _values(self) -> Values:
        p, facts = self.placement, self.facts
        return {
            **facts.names(),
            a.REGION: p.region,
            r.REGION_REASON: p.reason,
            r.REGION_SCHEDULER: p.scheduler,
            r.REGION_OUTCOME: p.outcome,
            r.REGION_FALLBACK: p.fallback,
            r.REGION_WINDOW: p.window,
            r.REGION_WINDOW_REQUESTS: p.window_requests,
            r.REGION_WINDOW_SECONDS: p.window_seconds,
            r.REGION_SOLVER_SECONDS: p.solver_seconds,
            r.REGION_GAP: p.gap,
            r.REGION_STATE_AGE: p.state_age_seconds,
            r.REGION_HELD: p.held_seconds,
            r.REGION_SESSION: p.session,
            r.REGION_CARBON: p.carbon_counts,
            a.PROMPT_TOKENS: facts.prompt_tokens,
            a.EXPECTED_OUTPUT_TOKENS: facts.expected_output_tokens,
        }
