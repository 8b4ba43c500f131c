"""The loop of `heliotrope.decide.load.project`. Import it where it is first needed: see `heliotrope.compiled`."""

from math import exp

import numpy as np
from numpy.typing import NDArray

from heliotrope.compiled import compiled
from heliotrope.decide.load import DUTY_TIME_CONSTANT_SECONDS, LONGEST_DUTY, LONGEST_STEP_SECONDS, Column, Fact

Matrix = NDArray[np.float64]

_SCRAPED_S = int(Fact.SCRAPED_S)
_RUNNING = int(Fact.RUNNING)
_WAITING = int(Fact.WAITING)
_KV_TOKENS = int(Fact.KV_TOKENS)
_OWN_AT_SCRAPE = int(Fact.OWN_AT_SCRAPE)
_OWN_WAITING_AT_SCRAPE = int(Fact.OWN_WAITING_AT_SCRAPE)
_OWN = int(Fact.OWN)
_OWN_WAITING = int(Fact.OWN_WAITING)
_OWN_WAITING_TOKENS = int(Fact.OWN_WAITING_TOKENS)
_OLDEST_WAITING_S = int(Fact.OLDEST_WAITING_S)
_PROMPT_TOKENS = int(Fact.PROMPT_TOKENS)
_OUTPUT_TOKENS = int(Fact.OUTPUT_TOKENS)
_TOKENS_SINCE_SCRAPE = int(Fact.TOKENS_SINCE_SCRAPE)
_PREFILL_SECONDS = int(Fact.PREFILL_SECONDS)
_PREFILL_AS_OF_S = int(Fact.PREFILL_AS_OF_S)
_PIECE_S = int(Fact.PIECE_S)
_OWN_WAITING_SQUARES = int(Fact.OWN_WAITING_SQUARED_TOKENS)
_STEP_BEGAN_S = int(Fact.STEP_BEGAN_S)
_STEP_PREFILLS = int(Fact.STEP_PREFILLS)

_AS_THEY_ARE = (
    (int(Column.KV_CAPACITY_TOKENS), int(Fact.KV_CAPACITY_TOKENS)),
    (int(Column.KV_USAGE), int(Fact.KV_USAGE)),
    (int(Column.POWER_WATTS), int(Fact.POWER_WATTS)),
    (int(Column.SM_CLOCK_MHZ), int(Fact.SM_CLOCK_MHZ)),
    (int(Column.RECENT_RUNNING), int(Fact.RECENT_RUNNING)),
    (int(Column.RECENT_PROMPT_TOKENS_PER_SECOND), int(Fact.RECENT_PROMPT_RATE)),
)
_TO_RUNNING = int(Column.RUNNING)
_TO_WAITING = int(Column.WAITING)
_TO_WAITING_TOKENS = int(Column.WAITING_TOKENS)
_TO_OLDEST = int(Column.OLDEST_WAITING_SECONDS)
_TO_KV_TOKENS = int(Column.KV_TOKENS)
_TO_DUTY = int(Column.PREFILL_DUTY)
_TO_PREFILL_TOKENS = int(Column.PREFILL_TOKENS_IN_FLIGHT)
_TO_DECODE_TOKENS = int(Column.DECODE_TOKENS_IN_FLIGHT)
_TO_SINCE_PIECE = int(Column.SECONDS_SINCE_PIECE)
_TO_SQUARES = int(Column.WAITING_SQUARED_TOKENS)
_TO_STEP_SECONDS = int(Column.STEP_SECONDS)
_TO_STEP_PREFILLS = int(Column.STEP_PREFILLS)


@compiled
def fill(facts: Matrix, now_s: float, stale_after_s: float, loads: Matrix) -> None:
    """Write every column of every endpoint.

    Args:
        facts: shape (n, `FACTS`).
        now_s: monotonic.
        stale_after_s: older metrics are unknown.
        loads: shape (`COLUMNS`, n), written to.
    """
    for i in range(facts.shape[0]):
        f = facts[i]
        seen = f[_RUNNING] + f[_WAITING]
        if not (now_s - f[_SCRAPED_S] <= stale_after_s and seen == seen):
            loads[:, i] = np.nan
            continue
        others = max(seen - f[_OWN_AT_SCRAPE], 0.0)
        # Requests before the next one's prefill: our own, and those that others had at the scrape. Those that we know
        # nothing about are taken to be as long as ours are on average.
        others_waiting = max(f[_WAITING] - f[_OWN_WAITING_AT_SCRAPE], 0.0)
        mean_prompt = f[_PROMPT_TOKENS] / f[_OWN] if f[_OWN] > 0.0 else 0.0
        waiting = f[_OWN_WAITING] + others_waiting
        loads[_TO_RUNNING, i] = max(f[_OWN] + others - waiting, 0.0)
        loads[_TO_WAITING, i] = waiting
        loads[_TO_WAITING_TOKENS, i] = f[_OWN_WAITING_TOKENS] + others_waiting * mean_prompt
        loads[_TO_OLDEST, i] = now_s - f[_OLDEST_WAITING_S] if f[_OWN_WAITING] > 0.0 else 0.0
        loads[_TO_KV_TOKENS, i] = f[_KV_TOKENS] + f[_TOKENS_SINCE_SCRAPE]
        elapsed = max(now_s - f[_PREFILL_AS_OF_S], 0.0)
        prefill = f[_PREFILL_SECONDS] * exp(-elapsed / DUTY_TIME_CONSTANT_SECONDS)
        loads[_TO_DUTY, i] = min(prefill / DUTY_TIME_CONSTANT_SECONDS, LONGEST_DUTY)
        loads[_TO_PREFILL_TOKENS, i] = f[_OWN_WAITING_TOKENS]
        loads[_TO_DECODE_TOKENS, i] = max(f[_OUTPUT_TOKENS], 0.0)
        loads[_TO_SINCE_PIECE, i] = now_s - f[_PIECE_S]
        loads[_TO_SQUARES, i] = f[_OWN_WAITING_SQUARES] + others_waiting * mean_prompt * mean_prompt
        step = now_s - f[_STEP_BEGAN_S]
        # A step that computed prompts has ended, unseen, once none of ours waits.
        ended = f[_STEP_PREFILLS] > 0.0 and not f[_OWN_WAITING] > 0.0
        known = f[_OWN] > 0.0 and 0.0 <= step <= LONGEST_STEP_SECONDS and not ended
        loads[_TO_STEP_SECONDS, i] = step if known else np.nan
        loads[_TO_STEP_PREFILLS, i] = f[_STEP_PREFILLS] if known else np.nan
        for to, of in _AS_THEY_ARE:
            loads[to, i] = f[of]
