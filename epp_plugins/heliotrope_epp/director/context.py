"""What the director remembers of a routed request until it ends."""

from dataclasses import dataclass, field

from heliotrope.decide.candidates import FloatColumn
from heliotrope_epp.datalayer.inflight import Dispatch
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.outcomes.finished import UNSTEERED, Expected
from heliotrope_epp.plugins.interface import LlmRequest
from heliotrope_epp.tracing.tracer import UNTRACED, RequestTrace


@dataclass(frozen=True, slots=True, eq=False)
class PrefillPart:
    """An endpoint that does a phase of a request which another one decodes, and its load till the first token."""

    state: EndpointState
    dispatch: Dispatch
    engine_seconds: float
    """That the phase is expected to occupy it for."""


@dataclass(frozen=True, slots=True, eq=False)
class EncodePart(PrefillPart):
    """An encoder, and the tokens of each image that it gets."""

    image_tokens: tuple[float, ...]
    """Of those that it is to encode."""
    remembered_tokens: tuple[float, ...]
    """Of those whose embeddings it is believed to remember."""


@dataclass(slots=True, eq=False)
class RoutedContext:
    """Handed through the transport and back in `done`. `request` is None where the body was not understood."""

    state: EndpointState
    dispatch: Dispatch
    request: LlmRequest | None
    region: str | None
    variant: str | None = None
    dispatched_unix_s: float = 0.0
    policy: str | None = None
    arm: str = UNSTEERED
    request_class: str = ""
    expected: Expected | None = None
    features: FloatColumn | None = field(default=None, repr=False)
    ttft_slo_seconds: float | None = None
    tpot_slo_seconds: float | None = None
    trace: RequestTrace = UNTRACED
    prefill: PrefillPart | None = None
    """None: it is prefilled where it is decoded."""
    encodes: tuple[EncodePart, ...] = ()
    """Of its encoders, in which a prompt is the images that each gets; empty: they are encoded with the prefill."""
