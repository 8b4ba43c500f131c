"""Which steps of an engine end before a request's first token.

Import it where it is first needed: see `heliotrope.compiled`.
"""

from heliotrope.compiled import compiled

UNSEEN = 0.5
"""Of a decode step, expected to be left where nobody knows since when it runs: a request meets it at any point."""


@compiled
def steps_ahead(requests: float, step_seconds: float, step_prefills: float) -> tuple[float, float, float]:
    """What ends before the first token of a request that comes now, its own prefill included.

    An engine prefills everything that waits in one step and decodes once before it prefills again
    (`heliotrope.predict.step_phase`): behind a step that prefills come a decode and this request's own prefill, behind
    one that decodes comes this prefill, together with all that waits.

    Args:
        requests: that run or wait there.
        step_seconds: how long the running step has run; NaN: nobody knows.
        step_prefills: 1 where it computes prompts, 0 where it decodes; NaN: nobody knows.

    Returns:
        Decode steps, `UNSEEN` where the running step is not known; prefill steps; how much of them is over, in seconds.
    """
    if requests <= 0.0:
        return 0.0, 1.0, 0.0
    if not (step_seconds >= 0.0 and step_prefills >= 0.0):
        return UNSEEN, 1.0, 0.0
    return 1.0, 1.0 + step_prefills, step_seconds
