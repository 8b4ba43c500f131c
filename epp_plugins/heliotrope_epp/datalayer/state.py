"""The live state of one endpoint, and its projection to now."""

from dataclasses import dataclass, field

from heliotrope.predict.recent_load import RecentLoad, after_page
from heliotrope_epp.datalayer.endpoint import Endpoint, EngineMetrics, Traits
from heliotrope_epp.datalayer.inflight import InFlight

NAN = float("nan")


@dataclass(frozen=True, slots=True)
class Load:
    """An endpoint's load at one moment; NaN where unknown."""

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

    @property
    def requests(self) -> float:
        """Running and waiting together."""
        return self.running + self.waiting


UNKNOWN_LOAD = Load(NAN, NAN, NAN, NAN, NAN, NAN)


@dataclass(slots=True)
class EndpointState:
    """Owned by the loop's thread: the data layer writes it, decisions read it."""

    endpoint: Endpoint
    traits: Traits = field(default_factory=Traits)
    metrics: EngineMetrics | None = None
    inflight: InFlight = field(default_factory=InFlight)
    inflight_at_scrape: int = 0
    """Own requests when `metrics` was scraped: what the engine then had beyond them belongs to others."""
    waiting_at_scrape: int = 0
    """Of them, those that waited for their first token."""
    recent: RecentLoad = field(default_factory=RecentLoad)
    tells_computed: bool = False
    """Its pages tell computed prompt tokens from cached ones: the other count is not taken in their place."""
    consecutive_failures: int = 0
    """Scrapes that failed since the last good one."""

    def fresh_metrics(self, now_s: float, stale_after_s: float) -> EngineMetrics | None:
        """The last scrape, or None if there is none or it is older than `stale_after_s`."""
        metrics = self.metrics
        return metrics if metrics is not None and now_s - metrics.scraped_s <= stale_after_s else None

    def load(self, now_s: float, stale_after_s: float) -> Load:
        """The load now: what others had at the last scrape, plus our own requests in flight.

        Unknown when metrics are missing, NaN or stale: then we do not know what others sent there.
        """
        metrics = self.fresh_metrics(now_s, stale_after_s)
        if metrics is None or metrics.running is None or metrics.waiting is None:
            return UNKNOWN_LOAD
        seen = metrics.running + metrics.waiting
        others = max(seen - self.inflight_at_scrape, 0.0)
        own = len(self.inflight)
        own_waiting, own_waiting_tokens = self.inflight.waiting(now_s)
        # Requests before the next one's prefill: our own, and those that others had at the scrape. Those that we know
        # nothing about are taken to be as long as ours are on average.
        others_waiting = max(metrics.waiting - self.waiting_at_scrape, 0.0)
        waiting = own_waiting + others_waiting
        _, new_tokens = self.inflight.dispatched_since(metrics.scraped_s)
        return Load(
            running=max(own + others - waiting, 0.0),
            waiting=waiting,
            waiting_tokens=own_waiting_tokens + others_waiting * self.inflight.mean_prompt_tokens(),
            oldest_waiting_seconds=self.inflight.oldest_waiting_s(now_s),
            kv_tokens=self._kv_tokens(metrics) + new_tokens,
            prefill_duty=self.inflight.prefill_duty(now_s),
            prefill_tokens_in_flight=own_waiting_tokens,
            decode_tokens_in_flight=self.inflight.expected_output_tokens(),
            kv_capacity_tokens=self._kv_capacity_tokens(metrics),
            power_watts=NAN if metrics.power_watts is None else metrics.power_watts,
            sm_clock_mhz=NAN if metrics.sm_clock_mhz is None else metrics.sm_clock_mhz,
            seconds_since_piece=self.inflight.seconds_since_piece(now_s),
            recent_running=self.recent.running,
            recent_prompt_tokens_per_second=self.recent.prompt_tokens_per_second,
        )

    def scraped(self, metrics: EngineMetrics) -> None:
        """Take a new scrape, and remember what of it was our own."""
        self.metrics = metrics
        self.inflight_at_scrape = len(self.inflight)
        self.waiting_at_scrape = self.inflight.waiting(metrics.scraped_s)[0]
        prompt_tokens = metrics.computed_prompt_tokens_total
        self.tells_computed = self.tells_computed or prompt_tokens is not None
        if not self.tells_computed:
            prompt_tokens = metrics.prompt_tokens_total
        self.recent = after_page(self.recent, metrics.scraped_s, metrics.running, prompt_tokens)

    def _kv_tokens(self, metrics: EngineMetrics) -> float:
        return NAN if metrics.kv_usage is None else metrics.kv_usage * self._kv_capacity_tokens(metrics)

    def _kv_capacity_tokens(self, metrics: EngineMetrics) -> float:
        if metrics.block_size is not None and metrics.num_blocks is not None:
            return float(metrics.block_size * metrics.num_blocks)
        engine = self.traits.engine
        return NAN if engine is None else float(engine.kv_capacity_tokens)
