"""Answers that the sidecar gives itself, in the shape of llm-d's."""

from http import HTTPStatus

from aiohttp import web

from heliotrope.errors import HeliotropeError


class SidecarError(HeliotropeError):
    """A request is answered with an error; `kind` is the error's type in the body."""

    def __init__(self, status: HTTPStatus, kind: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.message = message

    def response(self) -> web.Response:
        """The HTTP response."""
        body = {"object": "error", "message": self.message, "type": self.kind, "param": "", "code": self.status.value}
        return web.json_response(body, status=self.status.value)


def invalid_json() -> SidecarError:
    """The body is not a JSON object, so nothing can be put into it."""
    return SidecarError(HTTPStatus.BAD_REQUEST, "BadRequestError", "the request's body must be a JSON object")


def forbidden(target: str) -> SidecarError:
    """A header names a target that is not on the list of allowed ones."""
    return SidecarError(HTTPStatus.FORBIDDEN, "Forbidden", f"prefill target {target} is not allowed")


def unreachable(stage: str, reason: str) -> SidecarError:
    """Another engine did not answer."""
    return SidecarError(HTTPStatus.BAD_GATEWAY, "BadGateway", f"{stage}: {reason}")


def timed_out(stage: str) -> SidecarError:
    """Another engine took too long."""
    return SidecarError(HTTPStatus.GATEWAY_TIMEOUT, "GatewayTimeout", f"{stage}: no answer in time")


def decoder_down() -> SidecarError:
    """The sidecar's own engine refuses connections."""
    return SidecarError(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "ServiceUnavailable",
        "The decode node is not ready. Check that the engine runs and that the sidecar's decoder URL is its address.",
    )
