"""What a picker needs out of an engine's Prometheus page, without reading the rest of it.

A vLLM page is about 50 KB of which a dozen lines matter, and it is read several times a second per endpoint. So the
page is searched for those names instead of being parsed.

An endpoint may run several engine cores (data parallelism behind one port) and several accelerators; each has its own
series. Counts are then summed and shares averaged.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from math import fsum, isfinite

from heliotrope_epp.datalayer.endpoint import EngineMetrics

ENERGY_COUNTER = b"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
"""Cumulative, in mJ, one series per accelerator (DCGM's name and unit)."""
POWER = b"DCGM_FI_DEV_POWER_USAGE"
"""In W, one series per accelerator."""
POWER_LIMIT = b"DCGM_FI_DEV_POWER_MGMT_LIMIT"
"""In W, one series per accelerator."""
CLOCK_EVENTS = (b"DCGM_FI_DEV_CLOCKS_EVENT_REASONS", b"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS")
"""Bits of NVML, one series per accelerator; the second is what DCGM called it before version 3.3."""
THROTTLED = 0x4 | 0x8 | 0x20 | 0x40 | 0x80
"""Of those bits: software power cap, hardware slowdown, software and hardware thermal slowdown, power brake. The others
(idle, set clocks, synchronised boost, display) take nothing away that was wanted."""
SM_CLOCK = b"DCGM_FI_DEV_SM_CLOCK"
"""In MHz, one series per accelerator."""


class EngineType(StrEnum):
    """The inference servers whose metric names are known; values of the label `llm-d.ai/engine-type`."""

    VLLM = "vllm"
    SGLANG = "sglang"


@dataclass(frozen=True, slots=True)
class MetricNames:
    """How one kind of engine calls what the picker reads; None where it has no such metric."""

    running: bytes
    waiting: bytes
    kv_usage: bytes
    cache_config: bytes
    block_size_label: bytes
    num_blocks_label: bytes
    prompt_tokens: bytes
    generation_tokens: bytes
    prefix_cache_queries: bytes | None = None
    prefix_cache_hits: bytes | None = None
    prompt_tokens_by_source: bytes | None = None
    first_tokens: bytes | None = None
    first_token_seconds: bytes | None = None
    inter_tokens: bytes | None = None
    inter_token_seconds: bytes | None = None
    first_token_buckets: bytes | None = None
    output_token_buckets: bytes | None = None
    """Of the mean per request, not of single tokens."""
    iterations: bytes | None = None
    sleep_state: bytes | None = None
    preemptions: bytes | None = None


VLLM = MetricNames(
    running=b"vllm:num_requests_running",
    waiting=b"vllm:num_requests_waiting",
    kv_usage=b"vllm:kv_cache_usage_perc",
    cache_config=b"vllm:cache_config_info",
    block_size_label=b"block_size",
    num_blocks_label=b"num_gpu_blocks",
    prompt_tokens=b"vllm:prompt_tokens_total",
    generation_tokens=b"vllm:generation_tokens_total",
    prefix_cache_queries=b"vllm:prefix_cache_queries_total",
    prefix_cache_hits=b"vllm:prefix_cache_hits_total",
    prompt_tokens_by_source=b"vllm:prompt_tokens_by_source_total",
    first_tokens=b"vllm:time_to_first_token_seconds_count",
    first_token_seconds=b"vllm:time_to_first_token_seconds_sum",
    inter_tokens=b"vllm:inter_token_latency_seconds_count",
    inter_token_seconds=b"vllm:inter_token_latency_seconds_sum",
    first_token_buckets=b"vllm:time_to_first_token_seconds_bucket",
    output_token_buckets=b"vllm:request_time_per_output_token_seconds_bucket",
    # A histogram in spite of its name: one observation per step, of the tokens in it.
    iterations=b"vllm:iteration_tokens_total_count",
    sleep_state=b"vllm:engine_sleep_state",
    preemptions=b"vllm:num_preemptions_total",
)

SGLANG = MetricNames(
    running=b"sglang:num_running_reqs",
    waiting=b"sglang:num_queue_reqs",
    kv_usage=b"sglang:token_usage",
    cache_config=b"sglang:cache_config_info",
    block_size_label=b"page_size",
    num_blocks_label=b"num_pages",
    prompt_tokens=b"sglang:prompt_tokens_total",
    generation_tokens=b"sglang:generation_tokens_total",
    first_tokens=b"sglang:time_to_first_token_seconds_count",
    first_token_seconds=b"sglang:time_to_first_token_seconds_sum",
    inter_tokens=b"sglang:inter_token_latency_seconds_count",
    inter_token_seconds=b"sglang:inter_token_latency_seconds_sum",
    first_token_buckets=b"sglang:time_to_first_token_seconds_bucket",
)

NAMES = {EngineType.VLLM: VLLM, EngineType.SGLANG: SGLANG}


def engine_metrics(page: bytes, names: MetricNames, scraped_s: float) -> EngineMetrics:
    """Read one page; what is missing, NaN or unreadable is None.

    Args:
        page: the body of a `/metrics` answer in Prometheus' text format.
        names: the engine's metric names.
        scraped_s: the monotonic time at which the page arrived.
    """
    page = b"\n" + page  # every sample then follows a line feed
    block_size, num_blocks = _cache_geometry(page, names)
    return EngineMetrics(
        scraped_s=scraped_s,
        running=_total(page, names.running),
        waiting=_total(page, names.waiting),
        kv_usage=_mean(page, names.kv_usage),
        block_size=block_size,
        num_blocks=num_blocks,
        prompt_tokens_total=_total(page, names.prompt_tokens),
        computed_prompt_tokens_total=_computed(page, names),
        first_tokens_total=_total(page, names.first_tokens),
        first_token_seconds_total=_total(page, names.first_token_seconds),
        inter_tokens_total=_total(page, names.inter_tokens),
        inter_token_seconds_total=_total(page, names.inter_token_seconds),
        generation_tokens_total=_total(page, names.generation_tokens),
        iterations_total=_total(page, names.iterations),
        prefix_cache_queries_total=_total(page, names.prefix_cache_queries),
        prefix_cache_hits_total=_total(page, names.prefix_cache_hits),
        energy_millijoules=_total(page, ENERGY_COUNTER),
        accelerators=_accelerators(page),
        power_watts=_total(page, POWER),
        power_limit_watts=_total(page, POWER_LIMIT),
        throttled=_throttled(page),
        preemptions_total=_total(page, names.preemptions),
        sm_clock_mhz=_mean(page, SM_CLOCK),
        asleep=_asleep(page, names),
    )


def _samples(page: bytes, name: bytes | None) -> Iterator[tuple[bytes, float | None]]:
    """Labels (between the braces) and value of every series of a metric; None for NaN, infinity and nonsense."""
    if name is not None:
        for labels, text in samples(page, name):
            yield labels, _number(text)


def samples(page: bytes, name: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Labels (between the braces) and the text after them of every series of a metric.

    The page must begin with a line feed, so that every sample follows one.
    """
    needle = b"\n" + name
    start = page.find(needle)
    while start >= 0:
        end = page.find(b"\n", start + 1)
        if end < 0:
            end = len(page)
        rest = page[start + len(needle) : end]
        if rest[:1] not in (b"{", b" ", b"\t"):
            start = page.find(needle, end)  # another metric, whose name begins alike
            continue
        labels, _, value = rest[1:].rpartition(b"}") if rest[:1] == b"{" else (b"", b"", rest)
        yield labels, value
        # The format keeps the series of a metric together.
        start = end if page.startswith(needle, end) else -1


def _number(text: bytes) -> float | None:
    """The value of a sample line's end, `value [timestamp]`."""
    words = text.split(None, 1)
    try:
        value = float(words[0])
    except (IndexError, ValueError):
        return None
    return value if isfinite(value) else None


def _total(page: bytes, name: bytes | None) -> float | None:
    """The sum over the series; None if there is none, or if one is unknown: a partial sum would look like a reset."""
    values = [value for _, value in _samples(page, name)]
    known = [value for value in values if value is not None]
    return fsum(known) if known and len(known) == len(values) else None


def _computed(page: bytes, names: MetricNames) -> float | None:
    """Prompt tokens that the engine computed itself, where it tells by source; unknown as for `_total`."""
    own = [
        value for labels, value in _samples(page, names.prompt_tokens_by_source) if b'source="local_compute"' in labels
    ]
    known = [value for value in own if value is not None]
    return fsum(known) if known and len(known) == len(own) else None


def _accelerators(page: bytes) -> tuple[tuple[str, int | None], ...]:
    """The series of the energy counter on an engine's own page, told apart by their labels."""
    return tuple((labels.decode("utf-8", "replace"), whole(value)) for labels, value in samples(page, ENERGY_COUNTER))


def whole(text: bytes) -> int | None:
    """The value of a sample as a whole number, exactly where it is written as one; None: none of 0 or more."""
    words = text.split(None, 1)
    if words and words[0].isdigit():
        return int(words[0])
    value = _number(text)
    return None if value is None or value < 0.0 else round(value)


def label_text(labels: bytes, name: bytes) -> str | None:
    """A label's value; None if absent or empty. Escapes stay as they are: names of pods and UUIDs have none."""
    match = re.search(rb"(?:^|,)\s*" + name + rb'="([^"]*)"', labels)
    return match[1].decode("utf-8", "replace") or None if match else None


def _mean(page: bytes, name: bytes) -> float | None:
    values = [value for _, value in _samples(page, name) if value is not None]
    return fsum(values) / len(values) if values else None


def _cache_geometry(page: bytes, names: MetricNames) -> tuple[int | None, int | None]:
    """Tokens per block and blocks in all; each engine core exports its own number of blocks."""
    block_size: int | None = None
    num_blocks: int | None = None
    for labels, _ in _samples(page, names.cache_config):
        size, blocks = _label(labels, names.block_size_label), _label(labels, names.num_blocks_label)
        block_size = size if size is not None else block_size
        if blocks is not None:
            num_blocks = blocks + (num_blocks or 0)
    return block_size, num_blocks


def _label(labels: bytes, name: bytes) -> int | None:
    """A label's value as a positive whole number, None if absent or anything else (vLLM writes `None`)."""
    match = re.search(rb"(?:^|,)\s*" + name + rb'="(\d{1,12})"', labels)
    return int(match[1]) or None if match else None


def _asleep(page: bytes, names: MetricNames) -> bool | None:
    """True as soon as one engine core is not awake."""
    awake = [value for labels, value in _samples(page, names.sleep_state) if b'sleep_state="awake"' in labels]
    known = [value for value in awake if value is not None]
    return any(value == 0.0 for value in known) if known else None


def _throttled(page: bytes) -> bool | None:
    """True as soon as one accelerator is; None where none of them tells."""
    for name in CLOCK_EVENTS:
        reasons = [whole(text) for _, text in samples(page, name)]
        known = [bits for bits in reasons if bits is not None]
        if known:
            return any(bits & THROTTLED for bits in known)
    return None
