"""The answers that a client gets when its request is not routed."""

import json
from dataclasses import dataclass

from heliotrope_epp.transport.interface import DROP_REASON_HEADER


@dataclass(frozen=True, slots=True)
class Rejection:
    """An HTTP answer in OpenAI's error shape, with llm-d's reason header."""

    status: int
    kind: str
    message: str
    reason: str | None = None
    """llm-d's dropped reason, and the label of the metric."""

    def body(self) -> bytes:
        """The JSON body."""
        error = {"message": self.message, "type": self.kind, "code": self.status}
        return json.dumps({"error": error}).encode()

    def headers(self) -> tuple[tuple[str, str], ...]:
        """Headers of the answer."""
        content = (("content-type", "application/json"),)
        return content if self.reason is None else (*content, (DROP_REASON_HEADER, self.reason))


def bad_request(message: str) -> Rejection:
    """400: the client must change its request."""
    return Rejection(400, "invalid_request_error", message, "rejected-bad-request")


def no_endpoints(message: str) -> Rejection:
    """503: there is nothing to send it to."""
    return Rejection(503, "service_unavailable", message, "rejected-no-endpoints")


def saturated(message: str) -> Rejection:
    """429: too much is in flight; the client should come back later."""
    return Rejection(429, "rate_limit_error", message, "rejected-saturated")


def nothing_feasible(message: str) -> Rejection:
    """503: endpoints exist, but the policy's hard constraints rule all of them out."""
    return Rejection(503, "service_unavailable", message, "rejected-nothing-feasible")


def internal(message: str) -> Rejection:
    """500: a defect in the picker."""
    return Rejection(500, "internal_error", message)
