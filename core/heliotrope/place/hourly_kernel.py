"""The loops of hourly plans. Import it where it is first needed: see `heliotrope.compiled`."""

import numpy as np
from numpy.typing import NDArray

from heliotrope.compiled import compiled
from heliotrope.decide.steps import decode_joules, decode_seconds, prefill_joules, prefill_seconds

Matrix = NDArray[np.float64]
Row = NDArray[np.float64]
Flags = NDArray[np.bool_]
Integers = NDArray[np.int64]


@compiled
def region_rates(
    rows: Matrix, engines: Row, capacity: Row, prompt: Row, output: Row, mean_prompt: float, mean_output: float
) -> tuple[Row, Matrix, Matrix]:
    """What regions do at their batch limit.

    Args:
        rows: coefficients, shape (d, C).
        engines: length d.
        capacity: sequences in an engine's batch, length d.
        prompt: mean tokens of each class, length K.
        output: likewise.
        mean_prompt: over all classes.
        mean_output: likewise.

    Returns:
        Tokens per second of each region, 0 where that is unknown; joules of a request of each class, shape (K, d);
        seconds of it on its own.
    """
    classes, d = len(prompt), len(engines)
    budget, joules, seconds = np.zeros(d), np.full((classes, d), np.nan), np.full((classes, d), np.nan)
    for i in range(d):
        c, batch = rows[i], capacity[i]
        if not (engines[i] > 0.0 and batch > 0.0 and c[0] == c[0]):
            continue
        context = mean_prompt + 0.5 * mean_output
        step = decode_seconds(c, batch, batch * context) / batch
        each = prefill_seconds(c, mean_prompt, 1.0, mean_prompt * mean_prompt) + mean_output * step
        budget[i] = engines[i] * (mean_prompt + mean_output) / each
        draw = decode_joules(c, batch, batch * context) / batch
        for k in range(classes):
            joules[k, i] = prefill_joules(c, prompt[k]) + output[k] * draw
            alone = decode_seconds(c, 1.0, prompt[k] + 0.5 * output[k])
            seconds[k, i] = prefill_seconds(c, prompt[k], 1.0, prompt[k] * prompt[k]) + output[k] * alone
    return budget, joules, seconds


@compiled
def follow(shares: Matrix, sent: Matrix, classes: Integers, tokens: Row, possible: Flags, places: Integers) -> None:
    """Give each request the possible region that is furthest behind its share of the class's tokens.

    Args:
        shares: shape (K, d).
        sent: tokens so far, shape (K, d), written to.
        classes: length n.
        tokens: length n.
        possible: shape (n, d).
        places: length n, written to where the class has a share in a possible region.
    """
    for r in range(len(places)):
        k = classes[r]
        total = sent[k].sum() + tokens[r]
        chosen, most = -1, -np.inf
        for i in range(shares.shape[1]):
            if shares[k, i] > 0.0 and possible[r, i]:
                behind = shares[k, i] * total - sent[k, i]
                if behind > most:
                    chosen, most = i, behind
        if chosen >= 0:
            places[r] = chosen
            sent[k, chosen] += tokens[r]
