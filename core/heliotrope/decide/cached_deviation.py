"""How much less sure an estimate is because what is believed to be cached may not be there.

A belief has a standard deviation (`heliotrope.cache.calibration`). One of it is so many tokens more to compute. What
that takes is independent of what else an estimate may be off by, so the two add in quadrature:

    σ² = σ_model² + (t_pre(u + δ) − t_pre(u))²          and so for the joules of the prefill

with u tokens to compute and δ the deviation. More than the whole prompt is never computed. So where a promise must be
kept with z standard deviations to spare, z·σ of this part is at most what computing everything takes more: an endpoint
that may have lost a prefix is not asked for more room than one that is known to have none.

Models of TTFT and joules have learned from requests of which beliefs were as wrong as they are. Their errors have it
already, and take the place of these. Loops: import it where it is first needed, see `heliotrope.compiled`.
"""

from math import sqrt

import numpy as np
from numpy.typing import NDArray

from heliotrope.compiled import compiled
from heliotrope.decide.steps import lower, prefill_joules, prefill_seconds, upper

Matrix = NDArray[np.float64]
Row = NDArray[np.float64]


@compiled
def seconds_more(c: Row, queued: float, uncached: float, more: float) -> float:
    """By how much longer a prefill takes with so many tokens more, behind what is queued."""
    whole = uncached + more
    with_more = prefill_seconds(c, queued + whole, 1.0, whole * whole)
    return float(with_more - prefill_seconds(c, queued + uncached, 1.0, uncached * uncached))


@compiled
def one_deviation(
    c: Row, queued: float, cached: float, deviation: float, prompt_tokens: float, certainty: float
) -> tuple[float, float]:
    """Seconds and joules of one standard deviation of cached tokens.

    Args:
        c: `heliotrope.engine.coefficients` of where the prompt is prefilled.
        queued: uncached tokens that wait there.
        cached: tokens of the prompt that are believed to be there.
        deviation: of these.
        prompt_tokens: all of them.
        certainty: standard deviations that a promise must be kept with.
    """
    uncached = upper(prompt_tokens - cached, 1.0)
    most = upper(prompt_tokens - uncached, 0.0)
    more = lower(deviation, most)
    seconds = lower(
        seconds_more(c, queued, uncached, more), seconds_more(c, queued, uncached, most) / upper(certainty, 1.0)
    )
    return seconds, prefill_joules(c, uncached + more) - prefill_joules(c, uncached)


@compiled
def add_to_estimates(
    coefficients: Matrix,
    waiting_tokens: Row,
    cached_tokens: Row,
    deviation_tokens: Row,
    prompt_tokens: float,
    certainty: float,
    table: Matrix,
) -> None:
    """Widen the errors of TTFT and joules of plans that prefill where they decode; before anything comes on top.

    Args:
        coefficients: of all plans; so are the next three.
        waiting_tokens: see `Candidates`.
        cached_tokens: see there.
        deviation_tokens: see there; 0: nothing speaks against the belief.
        prompt_tokens: of the request.
        certainty: of the policy.
        table: of `heliotrope.decide.columns.Columns`, changed.
    """
    ttft, ttft_error, energy, energy_error = table[0], table[3], table[5], table[6]
    for i in range(len(deviation_tokens)):
        if not deviation_tokens[i] > 0.0:
            continue
        seconds, joules = one_deviation(
            coefficients[i], waiting_tokens[i], cached_tokens[i], deviation_tokens[i], prompt_tokens, certainty
        )
        of_ttft, of_energy = seconds / ttft[i], joules / energy[i]
        ttft_error[i] = sqrt(ttft_error[i] * ttft_error[i] + of_ttft * of_ttft)
        energy_error[i] = sqrt(energy_error[i] * energy_error[i] + of_energy * of_energy)


@compiled
def add_to_prefills(
    coefficients: Matrix,
    waiting_tokens: Row,
    cached_tokens: Row,
    deviation_tokens: Row,
    prompt_tokens: float,
    certainty: float,
    spread_seconds: Row,
    joules: Row,
    joules_error: Row,
) -> None:
    """The same of what a prefill for another endpoint takes.

    Args:
        coefficients: of all prefillers; so are the next three.
        waiting_tokens: see `Candidates`.
        cached_tokens: see there.
        deviation_tokens: see there.
        prompt_tokens: of the request.
        certainty: of the policy.
        spread_seconds: one standard deviation of the time to the first token, changed.
        joules: of the prefill.
        joules_error: relative, changed.
    """
    for i in range(len(deviation_tokens)):
        if not deviation_tokens[i] > 0.0:
            continue
        seconds, more_joules = one_deviation(
            coefficients[i], waiting_tokens[i], cached_tokens[i], deviation_tokens[i], prompt_tokens, certainty
        )
        of_joules = more_joules / joules[i]
        spread_seconds[i] = sqrt(spread_seconds[i] * spread_seconds[i] + seconds * seconds)
        joules_error[i] = sqrt(joules_error[i] * joules_error[i] + of_joules * of_joules)
