"""Errors of the HTTP API in vLLM's shape."""

from http import HTTPStatus

from aiohttp import web

from heliotrope.errors import HeliotropeError


class ApiError(HeliotropeError):
    """A request is answered with an error; `kind` is vLLM's error type."""

    def __init__(self, status: HTTPStatus, message: str, *, kind: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind or status.phrase
        self.param = param

    def response(self) -> web.Response:
        """The HTTP response."""
        error = {"message": self.message, "type": self.kind, "param": self.param, "code": self.status.value}
        return web.json_response({"error": error}, status=self.status.value)


def bad_request(message: str, param: str | None = None) -> ApiError:
    """A request that parses but asks for what cannot be."""
    return ApiError(HTTPStatus.BAD_REQUEST, message, kind="BadRequestError", param=param)


def unknown_model(asked: str, served: str) -> ApiError:
    """A model that this engine does not serve."""
    message = f"The model `{asked}` does not exist. Valid aliases: {served}."
    return ApiError(HTTPStatus.NOT_FOUND, message, kind="NotFoundError", param="model")


def load_failed() -> ApiError:
    """KV that was to come from another engine did not."""
    return ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, "Internal server error", kind="InternalServerError")


def queue_full() -> ApiError:
    """More unfinished requests than the engine accepts."""
    return ApiError(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "The engine is currently busy and cannot accept new requests. "
        "Please try again later or on a different instance.",
    )
