"""What Prometheus scraped of engines themselves: from samples to rates, what is stale, doubled or broken left out.

Nothing of a series counts unless it is fresh: at least two samples, the newest of them younger than three scrape
intervals, and all of them numbers. A target that is scraped twice (two jobs, two replicas of Prometheus) counts once.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from statistics import fmean, median

from heliotrope.providers.prometheus_api import RawSeries
from heliotrope_operator.planning.observed import EngineRates

WINDOW_S = 300
"""Samples that are asked for."""
LATELY_S = 60.0
"""Over which rates are taken, or over one scrape interval where that is longer."""
FRESH_INTERVALS = 3.0
LONGEST_INTERVAL_S = 60.0
"""Engines that are scraped less often tell nothing of now."""

RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
KV_USAGE, KV_USAGE_BEFORE = "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"
"""The second is its name in releases before vLLM 0.10."""
FIRST_TOKENS = "vllm:time_to_first_token_seconds_count"
PROMPT_TOKENS, OUTPUT_TOKENS = "vllm:prompt_tokens_total", "vllm:generation_tokens_total"
SLEEP_STATE = "vllm:engine_sleep_state"
NAMES = (
    RUNNING,
    WAITING,
    KV_USAGE,
    KV_USAGE_BEFORE,
    FIRST_TOKENS,
    PROMPT_TOKENS,
    OUTPUT_TOKENS,
    SLEEP_STATE,
)
_OWN_LABELS = ("instance", "engine", "model_name", "sleep_state")
"""Which tell two things of one pod apart; by all others, one thing may be there twice."""


@dataclass(frozen=True, slots=True)
class Scraped:
    """One pod's engine."""

    rates: EngineRates
    fresh_for_s: float
    """Seconds after the question for which this counts."""
    queued: float | None
    """Requests that waited in its queue, the mean over the samples; None: unknown."""


@dataclass(frozen=True, slots=True)
class _Line:
    """One series that counts."""

    series: RawSeries
    interval_s: float
    fresh_for_s: float

    @property
    def newest(self) -> float:
        return self.series.values[-1]

    @property
    def mean(self) -> float:
        return fmean(self.series.values)

    @property
    def per_second(self) -> float:
        """Growth over the newest minute; a counter that fell has counted from zero since."""
        times, values = self.series.times_unix_s, self.series.values
        since = times[-1] - max(LATELY_S, self.interval_s) - 0.5 * self.interval_s
        first = min(next(i for i, time in enumerate(times) if time >= since), len(times) - 2)
        grown = sum(after - before if after >= before else after for before, after in pairwise(values[first:]))
        return grown / (times[-1] - times[first])


def scraped(series: Iterable[RawSeries], now_unix_s: float) -> dict[str, Scraped]:
    """Engines by pod, as far as they are known.

    Args:
        series: of `NAMES`, with the labels `__name__` and `pod`.
        now_unix_s: the time of the question, by the server's clock.
    """
    pods: dict[str, dict[str, dict[tuple[str, ...], RawSeries]]] = {}
    for each in series:
        pod, name = each.labels.get("pod", ""), each.labels.get("__name__", "")
        if not pod or name not in NAMES or not each.times_unix_s:
            continue
        same = pods.setdefault(pod, {}).setdefault(name, {})
        identity = tuple(each.labels.get(label, "") for label in _OWN_LABELS)
        known = same.get(identity)
        if known is None or each.times_unix_s[-1] > known.times_unix_s[-1]:
            same[identity] = each
    return {pod: _engine(by_name, now_unix_s) for pod, by_name in pods.items()}


def _engine(by_name: Mapping[str, Mapping[tuple[str, ...], RawSeries]], now: float) -> Scraped:
    lines = {name: _lines(by_name.get(name, {}).values(), now) for name in NAMES}

    def of(name: str, value: Callable[[_Line], float], together: Callable[[list[float]], float] = sum) -> float | None:
        """Of all processes of the pod; None where one of them is unknown, or there is none."""
        known = lines[name]
        return together([value(each) for each in known]) if known else None

    kv_usage = of(KV_USAGE, lambda line: line.newest, max)
    rates = EngineRates(
        asleep=_asleep(lines[SLEEP_STATE]),
        running=of(RUNNING, lambda line: line.newest),
        waiting=of(WAITING, lambda line: line.newest),
        kv_usage=of(KV_USAGE_BEFORE, lambda line: line.newest, max) if kv_usage is None else kv_usage,
        requests_per_second=of(FIRST_TOKENS, lambda line: line.per_second),
        prompt_tokens_per_second=of(PROMPT_TOKENS, lambda line: line.per_second),
        output_tokens_per_second=of(OUTPUT_TOKENS, lambda line: line.per_second),
    )
    needed = [line.fresh_for_s for name in (FIRST_TOKENS, WAITING) for line in lines[name] or ()]
    return Scraped(rates, min(needed, default=0.0), of(WAITING, lambda line: line.mean))


def _lines(found: Iterable[RawSeries], now: float) -> list[_Line] | None:
    """Those of one name; None as soon as one of them does not count."""
    lines = []
    for series in found:
        line = _line(series, now)
        if line is None:
            return None
        lines.append(line)
    return lines


def _line(series: RawSeries, now: float) -> _Line | None:
    times = series.times_unix_s
    steps = [after - before for before, after in pairwise(times)]
    if not steps or min(steps) <= 0.0 or not all(isfinite(value) and value >= 0.0 for value in series.values):
        return None
    interval_s = median(steps)
    fresh_for_s = FRESH_INTERVALS * min(interval_s, LONGEST_INTERVAL_S) - (now - times[-1])
    return _Line(series, interval_s, fresh_for_s) if fresh_for_s >= 0.0 else None


def _asleep(lines: list[_Line] | None) -> bool | None:
    """Whether the engine sleeps; None: it does not tell."""
    awake = [line.newest for line in lines or () if line.series.labels.get("sleep_state") == "awake"]
    return not all(awake) if awake else None
