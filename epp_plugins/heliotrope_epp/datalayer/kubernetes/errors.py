"""What may come of a call to the API server, by what is done about it."""

from heliotrope.errors import HeliotropeError


class ApiError(HeliotropeError):
    """A call failed; back off and list again."""


class UnreachableError(ApiError):
    """No answer, or the server is overloaded or failing."""


class RefusedError(ApiError):
    """The credentials are not accepted or lack a right."""


class NotServedError(ApiError):
    """The server does not know the kind of resource, or there is no such object."""


class ExpiredError(ApiError):
    """The resource version is too old to go on from."""
