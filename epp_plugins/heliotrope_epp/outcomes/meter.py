"""Who measures the energy of requests in flight, as the director sees it."""

from dataclasses import dataclass
from typing import Protocol

from heliotrope_epp.outcomes.finished import FinishedRequest
from heliotrope_epp.outcomes.sinks import Sinks


@dataclass(frozen=True, slots=True)
class EncodedAt:
    """What one encoder has of a request."""

    endpoint: str
    image_tokens: tuple[float, ...]
    """Of each image that it is to encode."""
    remembered_tokens: tuple[float, ...]
    """Of each image whose embedding it is believed to remember."""
    seconds: float
    """That encoding is expected to keep it busy."""


@dataclass(frozen=True, slots=True)
class Routed:
    """What is known of a request when it is sent to an endpoint; tokens as believed, times monotonic."""

    endpoint: str
    """Where it decodes, and where it is prefilled unless `prefill_endpoint` says otherwise."""
    model: str
    """That answers."""
    streaming: bool
    prompt_tokens: float
    cached_tokens: float
    """Prompt tokens whose KV the engine is expected to hold already."""
    dispatched_s: float
    first_token_due_s: float
    prefill_endpoint: str | None = None
    """Of a prefill/decode pair: the engine that prefills."""
    encodes: tuple[EncodedAt, ...] = ()
    """Its encoders; empty: images are encoded where the prompt is prefilled."""


class RequestMeter(Protocol):
    """Follows routed requests. Called on the loop's thread; a key is what the transport hands back as `ctx`."""

    def routed(self, key: object, request: Routed) -> None:
        """A parsed request was sent to an endpoint."""
        ...

    def ended(self, key: object, request: FinishedRequest) -> None:
        """It ended. The sinks are told once its energy is settled."""
        ...


class NoMeter:
    """Measures nothing: sinks are told at once, without energy."""

    def __init__(self, sinks: Sinks) -> None:
        self._sinks = sinks

    def routed(self, key: object, request: Routed) -> None:
        """Nothing to follow."""

    def ended(self, key: object, request: FinishedRequest) -> None:  # noqa: ARG002 - nothing was kept under it
        """Tell the sinks."""
        self._sinks.measured(request, None)
