"""The third choice beside staying and recomputing: pull the session's KV blocks from where they are.

Priced with the product's own functions (`heliotrope.cache.costs`); each end's joules count with its grid.
"""

import numpy as np

from heliotrope.cache.costs import transfer
from heliotrope_sim.reproduce.context.profiles import MODEL_OF, MODELS, REGION_OF, Floats
from heliotrope_sim.reproduce.context.system import System

_BY_MODEL = tuple(np.flatnonzero(m == MODEL_OF) for m in range(len(MODELS)))


def best_sources(
    system: System,
    owners: list[tuple[int, float]],
    cached: Floats,
    history: float,
    ttft: Floats,
    price: Floats,
    intensity: Floats,
    seconds_per_token: Floats,
) -> tuple[Floats, Floats, Floats]:
    """What is best pulled to each deployment of the same model: history tokens, seconds and grams; 0 where nothing.

    A pull must emit less than recomputing the same tokens, and take less time unless the bound is kept anyway.

    Args:
        system: links, ratios and the TTFT bound.
        owners: deployments that cache some of the session, with the tokens.
        cached: history tokens at each deployment.
        history: all of them.
        ttft: estimates without pulling, seconds.
        price: grams of an uncached input token.
        intensity: of each deployment's grid.
        seconds_per_token: of prefill.
    """
    assert system.transfers is not None
    n = len(cached)
    tokens, seconds, emitted, gain = np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n)
    for owner, owned in owners:
        model = int(MODEL_OF[owner])
        for a in _BY_MODEL[model].tolist():
            moved = min(owned, history) - float(cached[a])
            if a == owner or moved <= 0.0:
                continue
            same_region = REGION_OF[a] == REGION_OF[owner]
            link = system.transfers.region if same_region else system.transfers.wan
            t = transfer(moved, MODELS[model].kv_bytes_per_token, link)
            cost = t.grams_co2e(sender_g_per_kwh=float(intensity[owner]), receiver_g_per_kwh=float(intensity[a]))
            saved = float(price[a]) * (1.0 - system.ratios.cached) * moved - cost
            later = t.seconds - moved * float(seconds_per_token[a])
            in_time = later <= 0.0 or float(ttft[a]) + later <= system.ttft_bound_seconds
            if saved > gain[a] and in_time:
                tokens[a], seconds[a], emitted[a], gain[a] = moved, t.seconds, cost, saved
    return tokens, seconds, emitted
