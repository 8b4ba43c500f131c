"""The live state of one endpoint, and its projection to now."""

from dataclasses import dataclass

import numpy as np

from heliotrope.decide.candidates import FloatColumn
from heliotrope.decide.load import Fact, project
from heliotrope.predict.recent_load import RecentLoad, after_page
from heliotrope_epp.datalayer.endpoint import Endpoint, EngineMetrics, Traits
from heliotrope_epp.datalayer.inflight import InFlight, no_facts
from heliotrope_epp.datalayer.latency_buckets import LatencyBuckets

NAN = float("nan")
NO_PAGE = EngineMetrics(NAN)
"""What an engine that was not read yet says: nothing."""


@dataclass(frozen=True, slots=True)
class Load:
    """An endpoint's load at one moment; NaN where unknown. In the order of `heliotrope.decide.load.Column`."""

    running: float
    waiting: float
    waiting_tokens: float
    oldest_waiting_seconds: float
    """How long the first of our own in the queue has waited; 0 if none of ours waits."""
    kv_tokens: float
    prefill_duty: float
    prefill_tokens_in_flight: float = NAN
    """Of our own requests that have not answered yet."""
    decode_tokens_in_flight: float = NAN
    """That our own open requests were expected to produce."""
    kv_capacity_tokens: float = NAN
    power_watts: float = NAN
    sm_clock_mhz: float = NAN
    seconds_since_piece: float = NAN
    """Since the last piece of an answer to us came from there: a step of the engine ended just before it."""
    recent_running: float = NAN
    """Sequences in the batch, smoothed (`heliotrope.predict.recent_load`)."""
    recent_prompt_tokens_per_second: float = NAN
    """Prompt tokens that the engine computes for everybody, smoothed likewise."""
    waiting_squared_tokens: float = NAN
    """Σ n² over the prompts that wait."""
    step_seconds: float = NAN
    """How long the running step has run (`heliotrope.predict.step_phase`)."""
    step_prefills: float = NAN
    """1 if it computes prompts, 0 if it decodes."""
    kv_usage: float = NAN
    """Share of KV blocks in use at the last reading, in [0, 1]."""

    @property
    def requests(self) -> float:
        """Running and waiting together."""
        return self.running + self.waiting


class EndpointState:
    """Owned by the loop's thread: the data layer writes it, decisions read it.

    What decisions need of many endpoints at once stands in `facts`, which every change keeps up to date.
    """

    __slots__ = (
        "_facts",
        "_inflight_at_scrape",
        "_metrics",
        "_traits",
        "consecutive_failures",
        "endpoint",
        "facts",
        "inflight",
        "latency",
        "recent",
        "tells_computed",
    )

    def __init__(self, endpoint: Endpoint, traits: Traits | None = None, metrics: EngineMetrics | None = None) -> None:
        self.endpoint = endpoint
        self._traits = Traits() if traits is None else traits
        self._facts = no_facts()
        self.facts: FloatColumn = np.frombuffer(self._facts, dtype=np.float64)
        """`heliotrope.decide.load.Fact` by position; a view, to be copied by who keeps it."""
        self.facts.setflags(write=False)
        self.inflight = InFlight(self._facts)
        self.recent = RecentLoad()
        self.tells_computed = False
        """Its pages tell computed prompt tokens from cached ones: the other count is not taken in their place."""
        self.latency: LatencyBuckets | None = None
        """Histograms of its page, read less often than the rest; None: not yet."""
        self.consecutive_failures = 0
        """Scrapes that failed since the last good one."""
        self._inflight_at_scrape = 0
        self._metrics: EngineMetrics | None = None
        self.metrics = metrics

    @property
    def traits(self) -> Traits:
        """What the resources say of the endpoint."""
        return self._traits

    @traits.setter
    def traits(self, traits: Traits) -> None:
        self._traits = traits
        self._note_kv()

    @property
    def metrics(self) -> EngineMetrics | None:
        """The last page of the engine; to take the next one, call `scraped`."""
        return self._metrics

    @metrics.setter
    def metrics(self, metrics: EngineMetrics | None) -> None:
        self._metrics = metrics
        page, facts = metrics or NO_PAGE, self._facts
        facts[Fact.SCRAPED_S] = page.scraped_s
        facts[Fact.RUNNING] = _known(page.running)
        facts[Fact.WAITING] = _known(page.waiting)
        facts[Fact.POWER_WATTS] = _known(page.power_watts)
        facts[Fact.SM_CLOCK_MHZ] = _known(page.sm_clock_mhz)
        since = () if metrics is None else self.inflight.sent_after(metrics.scraped_s)
        facts[Fact.TOKENS_SINCE_SCRAPE] = sum(dispatch.prompt_tokens for dispatch in since)
        self._note_kv()

    @property
    def inflight_at_scrape(self) -> int:
        """Own requests when `metrics` was scraped: what the engine then had beyond them belongs to others."""
        return self._inflight_at_scrape

    @inflight_at_scrape.setter
    def inflight_at_scrape(self, requests: int) -> None:
        self._inflight_at_scrape = requests
        self._facts[Fact.OWN_AT_SCRAPE] = float(requests)

    def fresh_metrics(self, now_s: float, stale_after_s: float) -> EngineMetrics | None:
        """The last scrape, or None if there is none or it is older than `stale_after_s`."""
        metrics = self._metrics
        return metrics if metrics is not None and now_s - metrics.scraped_s <= stale_after_s else None

    def load(self, now_s: float, stale_after_s: float) -> Load:
        """The load now; `heliotrope.decide.load.project` does the same for many endpoints at once."""
        self.inflight.expire(now_s)
        return Load(*project(self.facts.reshape(1, -1), now_s, stale_after_s).table[:, 0].tolist())

    def scraped(self, metrics: EngineMetrics) -> None:
        """Take a new scrape, and remember what of it was our own."""
        self.inflight.expire(metrics.scraped_s)
        self.metrics = metrics
        self.inflight_at_scrape = len(self.inflight)
        self._facts[Fact.OWN_WAITING_AT_SCRAPE] = self._facts[Fact.OWN_WAITING]
        prompt_tokens = metrics.computed_prompt_tokens_total
        self.tells_computed = self.tells_computed or prompt_tokens is not None
        if not self.tells_computed:
            prompt_tokens = metrics.prompt_tokens_total
        self.recent = after_page(self.recent, metrics.scraped_s, metrics.running, prompt_tokens)
        self._facts[Fact.RECENT_RUNNING] = self.recent.running
        self._facts[Fact.RECENT_PROMPT_RATE] = self.recent.prompt_tokens_per_second

    def _note_kv(self) -> None:
        page, engine = self._metrics or NO_PAGE, self._traits.engine
        capacity = NAN if engine is None else float(engine.kv_capacity_tokens)
        if page.block_size is not None and page.num_blocks is not None:
            capacity = float(page.block_size * page.num_blocks)
        usage = _known(page.kv_usage)
        self._facts[Fact.KV_CAPACITY_TOKENS] = capacity
        self._facts[Fact.KV_TOKENS] = usage * capacity
        self._facts[Fact.KV_USAGE] = usage


def _known(value: float | None) -> float:
    return NAN if value is None else value
