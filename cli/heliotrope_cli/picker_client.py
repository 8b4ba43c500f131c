"""Asks a picker's admin port, once and not for long."""

import json
from contextlib import suppress
from http.client import HTTPException
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import ProxyHandler, Request, build_opener

from heliotrope.decide.recorded import MAX_BYTES
from heliotrope.errors import HeliotropeError, InvalidInputError

TIMEOUT_SECONDS = 5.0
MAX_METRICS_BYTES = 64 * 1024 * 1024
_MAX_ERROR_BYTES = 4_096


class PickerUnreachableError(HeliotropeError):
    """A picker gave no usable answer."""


class DecisionNotKeptError(HeliotropeError):
    """A picker does not know a request, or no longer."""


def decision(picker: str, request_id: str, timeout_seconds: float = TIMEOUT_SECONDS) -> bytes:
    """The document of one decision.

    Args:
        picker: the admin port, such as http://127.0.0.1:9090.
        request_id: the `x-request-id` of the request.
        timeout_seconds: for connecting and for each read.

    Raises:
        InvalidInputError: if `picker` is no such address.
        PickerUnreachableError: if it does not answer, or not as a picker does.
        DecisionNotKeptError: if it does not know the request.
    """
    url = f"{_address(picker)}/debug/decisions/{quote(request_id, safe='')}"
    try:
        return _read(url, MAX_BYTES, timeout_seconds)
    except HTTPError as error:
        with error:
            told = _told(error)
        if error.code == 404 and told:
            raise DecisionNotKeptError(f"{request_id}: {told}") from error
        raise PickerUnreachableError(f"{url} answered {error.code}; is this a picker's metrics port?") from error


def metrics(picker: str, timeout_seconds: float = TIMEOUT_SECONDS) -> str:
    """A picker's metrics in Prometheus' text format.

    Args:
        picker: the admin port, such as http://127.0.0.1:9090.
        timeout_seconds: for connecting and for each read.

    Raises:
        InvalidInputError: if `picker` is no such address.
        PickerUnreachableError: if it does not answer, or not as a picker does.
    """
    url = f"{_address(picker)}/metrics"
    try:
        return _read(url, MAX_METRICS_BYTES, timeout_seconds).decode("utf-8", errors="replace")
    except HTTPError as error:
        error.close()
        raise PickerUnreachableError(f"{url} answered {error.code}; is this a picker's metrics port?") from error


def _address(picker: str) -> str:
    parts = urlsplit(picker)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidInputError("--picker", f"{picker!r} is no address such as http://127.0.0.1:9090")
    return picker.rstrip("/")


def _read(url: str, most_bytes: int, timeout_seconds: float) -> bytes:
    """The body, cut off one byte behind the limit; HTTPError where it is a refusal."""
    # Prompts are not in it, but where requests go is nobody else's business: no proxy is asked.
    opener = build_opener(ProxyHandler({}))
    try:
        with opener.open(Request(url), timeout=timeout_seconds) as response:  # noqa: S310 - the scheme is checked
            body: bytes = response.read(most_bytes + 1)
    except HTTPError:
        raise
    except (URLError, HTTPException, OSError) as error:
        reason = getattr(error, "reason", error)
        picker = url.removesuffix(urlsplit(url).path)
        raise PickerUnreachableError(
            f"{picker} does not answer ({reason}); give the address of the picker's metrics port"
        ) from error
    return body


def _told(error: HTTPError) -> str:
    """What a picker says in a refusal; empty where it is no picker's."""
    with suppress(ValueError, OSError, HTTPException):
        document = json.loads(error.read(_MAX_ERROR_BYTES))
        if isinstance(document, dict) and isinstance(document.get("error"), str):
            return str(document["error"])
    return ""
