"""Who measures the energy of requests in flight, as the director sees it."""

from typing import Protocol

from heliotrope_epp.outcomes.finished import FinishedRequest
from heliotrope_epp.outcomes.sinks import Sinks


class RequestMeter(Protocol):
    """Follows routed requests. Called on the loop's thread; a key is what the transport hands back as `ctx`."""

    def routed(self, key: object, endpoint: str, prompt_tokens: float, cached_tokens: float, now_s: float) -> None:
        """A parsed request was sent to an endpoint; tokens as believed."""
        ...

    def ended(self, key: object, request: FinishedRequest) -> None:
        """It ended. The sinks are told once its energy is settled."""
        ...


class NoMeter:
    """Measures nothing: sinks are told at once, without energy."""

    def __init__(self, sinks: Sinks) -> None:
        self._sinks = sinks

    def routed(self, key: object, endpoint: str, prompt_tokens: float, cached_tokens: float, now_s: float) -> None:
        """Nothing to follow."""

    def ended(self, key: object, request: FinishedRequest) -> None:  # noqa: ARG002 - nothing was kept under it
        """Tell the sinks."""
        self._sinks.measured(request, None)
