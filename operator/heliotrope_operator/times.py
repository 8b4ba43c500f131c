"""Times as the operator writes them down."""

from datetime import UTC, datetime

from heliotrope.api.scalars import format_time


def format_unix(time_unix_s: float) -> str:
    """RFC 3339 of Unix seconds, in UTC and to the second."""
    return format_time(datetime.fromtimestamp(round(time_unix_s), UTC))
