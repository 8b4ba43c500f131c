"""The estimates of one request in one region, in the words of `EngineModel`: what compiled loops must agree with."""

import math
from dataclasses import dataclass

import numpy as np

from heliotrope.engine.model import EngineModel
from heliotrope.place.policy import PlacementPolicy
from heliotrope.place.regions import Regions
from heliotrope.place.window import Window
from heliotrope.units import grams_co2e


@dataclass(frozen=True)
class Pair:
    ttft: float
    tpot: float
    joules: float
    grams: float
    activation_joules: float


def pair(engine: EngineModel, window: Window, regions: Regions, policy: PlacementPolicy, r: int, d: int) -> Pair:
    prompt, out = float(window.prompt_tokens[r]), float(window.output_tokens[r])
    out = max(policy.unknown_output_tokens if math.isnan(out) else out, 1.0)
    cached = float(window.cached_tokens[r, d])
    uncached = prompt if math.isnan(cached) or cached == 0.0 else max(prompt - cached, 1.0)
    running, waiting = float(regions.running[d]), float(regions.waiting[d])
    queued, kv = float(regions.waiting_tokens[d]), float(regions.kv_tokens[d])
    free = 1.0 - float(np.clip(regions.prefill_duty[d], 0.0, 0.95))
    ahead, most = running + waiting, float(engine.max_num_seqs)

    step = float(engine.decode_seconds(float(np.minimum(ahead, most)), kv))
    departures = float(np.maximum(ahead + 1.0 - most, 0.0))
    over_kv = float(np.maximum(kv + queued + prompt + out - engine.kv_capacity_tokens, 0.0))
    departures = float(np.maximum(departures, over_kv / np.maximum(kv / np.maximum(running, 1.0), 1.0)))
    wait = departures * out * step / float(np.maximum(running, 1.0)) / free
    mean_queued = queued / float(np.maximum(waiting, 1.0))
    squares = waiting * mean_queued**2
    delay = float(regions.rtt_seconds[d] + regions.dispatch_seconds[d] + window.waited_seconds[r])
    ttft = delay + wait + float(engine.prefill_seconds(uncached + queued, waiting + 1.0, uncached**2 + squares))
    decode = float(engine.decode_seconds(float(np.minimum(ahead + 1.0, most)), kv + queued))
    tpot = (decode + float(engine.prefill_seconds(queued, waiting, squares)) / out) / free

    context = prompt + out / 2.0
    one = float(engine.decode_joules(1.0, context))
    more = float(engine.decode_joules(8.0, 8.0 * context) - engine.decode_joules(7.0, 7.0 * context))
    joules = float(engine.prefill_joules(uncached)) + out * more
    idle = float(regions.idle_engines[d] / regions.engines[d])
    idle = float(np.clip(1.0 - ahead if math.isnan(idle) else idle, 0.0, 1.0))
    above_idle = one - more - engine.idle_watts * float(engine.decode_seconds(1.0, context))
    activation = idle * (out * above_idle - engine.idle_watts * float(engine.prefill_seconds(uncached, 1.0)))
    grams = float(grams_co2e(joules, float(regions.pue[d]), float(regions.intensity_g_per_kwh[d])))
    return Pair(ttft, tpot, joules, grams, activation)
