"""How fast things are looked at: who decides more often than usual also averages and waits over shorter times."""

USUAL_INTERVAL_SECONDS = 30.0
"""Between decisions, at which the time constants of planning are meant as they are."""


def pace(interval_seconds: float) -> float:
    """What time constants are multiplied by, in (0, 1]."""
    return min(interval_seconds / USUAL_INTERVAL_SECONDS, 1.0)
