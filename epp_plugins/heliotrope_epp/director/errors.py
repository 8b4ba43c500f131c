"""The answers that a client gets when its request is not routed."""

import json
from dataclasses import dataclass

from heliotrope_epp.demand.holding import End
from heliotrope_epp.transport.interface import DROP_REASON_HEADER


@dataclass(frozen=True, slots=True)
class Rejection:
    """An HTTP answer in OpenAI's error shape, with llm-d's reason header."""

    status: int
    kind: str
    message: str
    reason: str | None = None
    """llm-d's dropped reason, and the label of the metric."""
    retry_after_seconds: int | None = None
    """When to come again; None: it does not say."""

    def body(self) -> bytes:
        """The JSON body."""
        error = {"message": self.message, "type": self.kind, "code": self.status}
        return json.dumps({"error": error}).encode()

    def headers(self) -> tuple[tuple[str, str], ...]:
        """Headers of the answer."""
        headers: tuple[tuple[str, str], ...] = (("content-type", "application/json"),)
        if self.reason is not None:
            headers = (*headers, (DROP_REASON_HEADER, self.reason))
        if self.retry_after_seconds is not None:
            headers = (*headers, ("retry-after", str(self.retry_after_seconds)))
        return headers


_NOT_HELD = {
    End.EXPIRED: ("no engine started in time; try again later", "rejected-ttl-expired", 10),
    End.DRAINING: ("this picker is about to stop; try again", "rejected-draining", 1),
    End.FULL_REQUESTS: ("engines are starting and too many requests wait; try again later", "rejected-hold-full", 10),
    End.FULL_BYTES: ("engines are starting and too many bytes wait; try again later", "rejected-hold-full", 10),
}
"""Message, reason and seconds until another try is worth while, by why a request is not held."""


def bad_request(message: str) -> Rejection:
    """400: the client must change its request."""
    return Rejection(400, "invalid_request_error", message, "rejected-bad-request")


def no_endpoints(message: str) -> Rejection:
    """503: there is nothing to send it to."""
    return Rejection(503, "service_unavailable", message, "rejected-no-endpoints")


def not_held(end: End) -> Rejection:
    """503: no engine is awake, and the request cannot wait (any longer) for one."""
    message, reason, seconds = _NOT_HELD[end]
    return Rejection(503, "service_unavailable", message, reason, retry_after_seconds=seconds)


def saturated(message: str) -> Rejection:
    """429: too much is in flight; the client should come back later."""
    return Rejection(429, "rate_limit_error", message, "rejected-saturated")


def nothing_feasible(message: str) -> Rejection:
    """503: endpoints exist, but the policy's hard constraints rule all of them out."""
    return Rejection(503, "service_unavailable", message, "rejected-nothing-feasible")


def internal(message: str) -> Rejection:
    """500: a defect in the picker."""
    return Rejection(500, "internal_error", message)
