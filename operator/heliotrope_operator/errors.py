"""What can go wrong between the operator and the API server, one class per case that somebody handles."""

from heliotrope.errors import HeliotropeError


class ApiError(HeliotropeError):
    """The API server refused a request."""


class NotFoundError(ApiError):
    """The object, or its kind, does not exist."""


class ConflictError(ApiError):
    """The object has changed since it was read, or exists already."""


class ForbiddenError(ApiError):
    """The operator's RBAC does not allow the request."""


class ExpiredError(ApiError):
    """The version asked for is no longer kept (410 Gone)."""


class UnavailableError(ApiError):
    """No answer, or one that says to come back later."""


class NotLeaderError(HeliotropeError):
    """Another replica may be writing; nothing is written."""
