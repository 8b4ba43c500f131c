"""What can go wrong between the agent and the API server, one class per case that somebody handles."""

from heliotrope_agent.errors import AgentError


class ApiError(AgentError):
    """A request to the API server failed; by itself: refused for good."""


class UnauthorizedError(ApiError):
    """The API server does not take the credentials (401); they are read again."""


class ForbiddenError(ApiError):
    """The agent's rights, or the policy that binds it to its node, do not allow the request."""


class NotFoundError(ApiError):
    """The object, or its kind, does not exist."""


class ConflictError(ApiError):
    """The object is another one than it was, or exists already."""


class ExpiredError(ApiError):
    """The version asked for is no longer kept (410 Gone)."""


class SilentError(ApiError):
    """Nothing came on a watch for too long: nothing has changed, or the connection is half open."""


class UnavailableError(ApiError):
    """No answer, a broken one, or one that says to come back later."""
