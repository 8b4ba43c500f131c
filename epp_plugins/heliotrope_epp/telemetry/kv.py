"""Metrics of what the picker believes about KV caches: counts alone, no hashes and nothing of requests."""

from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from heliotrope.cache.calibration import BIN_EDGES, CacheCalibration
from heliotrope_epp.datalayer.kv_events import COUNTED, KvEventSubscriber
from heliotrope_epp.plugins.interface import Producer
from heliotrope_epp.plugins.producers.approx_prefix_cache import ApproxPrefixCacheProducer
from heliotrope_epp.plugins.producers.precise_prefix_cache import PrecisePrefixCacheProducer
from heliotrope_epp.plugins.retention import RetentionCounts

OWN, LOWER = "own", "lower"
OLDER = "+Inf"


class KvCollector(Collector):
    """Read when somebody scrapes; producers of other types say nothing of themselves."""

    def __init__(
        self,
        producers: Sequence[Producer],
        retention: Callable[[], RetentionCounts] | None = None,
        subscribers: Sequence[KvEventSubscriber] = (),
    ) -> None:
        self._producers = [
            p for p in producers if isinstance(p, (ApproxPrefixCacheProducer, PrecisePrefixCacheProducer))
        ]
        self._retention = retention
        self._subscribers = subscribers

    def collect(self) -> Iterator[Metric]:
        """All families."""
        yield from self._index()
        yield from self._learned()
        trust = GaugeMetricFamily(
            "heliotrope_kv_cache_trust",
            "Share of what the index says that is expected to be cached, by seconds since it was last used.",
            labels=["tier", "age"],
        )
        for tier, calibration in self._calibrations():
            edges = [*(f"{edge:g}" for edge in BIN_EDGES), OLDER]
            for edge, of in zip(edges, calibration.pool(), strict=True):
                trust.add_metric([tier, edge], of.share)
        yield trust
        if self._retention is not None:
            yield from _retention(self._retention())
        for producer in self._producers:
            if isinstance(producer, PrecisePrefixCacheProducer):
                yield from _engine_index(producer)
                break
        for subscriber in self._subscribers[:1]:
            yield from _events(subscriber)

    def _calibrations(self) -> Iterator[tuple[str, CacheCalibration]]:
        """Of the first producer: several learn the same."""
        for producer in self._producers[:1]:
            yield OWN, producer.believer.own
            yield LOWER, producer.believer.lower

    def _index(self) -> Iterator[Metric]:
        blocks = GaugeMetricFamily(
            "heliotrope_prefix_index_blocks", "Blocks that an endpoint is believed to cache.", labels=["endpoint"]
        )
        evicted = lower = 0
        held: dict[str, int] = {}
        for producer in self._producers:
            stats = producer.stats()
            evicted, lower = evicted + stats.evicted_total, lower + stats.lower_blocks
            for endpoint, count in stats.blocks.items():
                held[endpoint] = held.get(endpoint, 0) + count
        for endpoint, count in held.items():
            blocks.add_metric([endpoint], count)
        yield blocks
        yield GaugeMetricFamily(
            "heliotrope_prefix_index_lower_blocks", "Blocks in tiers below engines' own memory.", value=lower
        )
        yield CounterMetricFamily(
            "heliotrope_prefix_index_evictions", "Blocks forgotten because an endpoint was full.", value=evicted
        )

    def _learned(self) -> Iterator[Metric]:
        families = {
            "learned": CounterMetricFamily(
                "heliotrope_kv_beliefs_checked",
                "Requests whose engine said what it had cached, where the index had an opinion.",
                labels=["tier"],
            ),
            "false": CounterMetricFamily(
                "heliotrope_kv_false_claims",
                "Those of them where less than half of what was believed was cached.",
                labels=["tier"],
            ),
            "believed": CounterMetricFamily(
                "heliotrope_kv_believed_tokens", "Prompt tokens that the index believed cached.", labels=["tier"]
            ),
            "true": CounterMetricFamily("heliotrope_kv_true_tokens", "Those of them that were.", labels=["tier"]),
            "forgotten": CounterMetricFamily(
                "heliotrope_kv_forgotten_endpoints", "Endpoints whose trust was dropped for room.", labels=["tier"]
            ),
        }
        for tier, of in self._calibrations():
            families["learned"].add_metric([tier], of.learned_total)
            families["false"].add_metric([tier], of.false_claims_total)
            families["believed"].add_metric([tier], of.believed_tokens_total)
            families["true"].add_metric([tier], of.true_tokens_total)
            families["forgotten"].add_metric([tier], of.forgotten_total)
        yield from families.values()
        believers = [producer.believer for producer in self._producers[:1]]
        yield CounterMetricFamily(
            "heliotrope_kv_unbelieved",
            "Requests whose engine had cached something that the index knew nothing of.",
            value=sum(b.unbelieved_total for b in believers),
        )
        yield CounterMetricFamily(
            "heliotrope_kv_counter_windows",
            "Times that engines' own counters were learned from, as their answers say nothing.",
            value=sum(b.counted_total for b in believers),
        )
        yield CounterMetricFamily(
            "heliotrope_kv_unchecked",
            "Requests that nothing was learned from, as too many were open.",
            value=sum(b.dropped_total for b in believers),
        )


def _engine_index(producer: PrecisePrefixCacheProducer) -> Iterator[Metric]:
    stats = producer.engine_stats()
    blocks = GaugeMetricFamily(
        "heliotrope_kv_engine_blocks", "Blocks that an engine says it caches, in any tier.", labels=["endpoint"]
    )
    for endpoint, count in stats.blocks.items():
        blocks.add_metric([endpoint], count)
    yield blocks
    yield CounterMetricFamily(
        "heliotrope_kv_engine_dropped_blocks", "Blocks forgotten because the index was full.", value=stats.dropped_total
    )
    yield CounterMetricFamily(
        "heliotrope_kv_engine_orphan_blocks",
        "Blocks that could not be placed, as those before them were not told of.",
        value=stats.orphans_total,
    )
    ignored = CounterMetricFamily("heliotrope_kv_ignored_events", "KV events left out.", labels=["reason"])
    for reason, count in producer.ignored.items():
        ignored.add_metric([reason], count)
    yield ignored


def _events(subscriber: KvEventSubscriber) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "heliotrope_kv_event_endpoints", "Endpoints whose KV events are listened to.", value=subscriber.following()
    )
    events = CounterMetricFamily(
        "heliotrope_kv_event_messages",
        "Messages with KV events, and what went wrong with them.",
        labels=["what"],
    )
    for what in COUNTED:
        events.add_metric([what], subscriber.counts[what])
    yield events


def _retention(counts: RetentionCounts) -> Iterator[Metric]:
    advice = CounterMetricFamily(
        "heliotrope_kv_retentions", "Turns that ended, by whether their prefix is worth keeping.", labels=["advice"]
    )
    for name, count in counts.advice_total.items():
        advice.add_metric([name], count)
    yield advice
    yield CounterMetricFamily(
        "heliotrope_kv_hold_seconds",
        "Seconds that prefixes were advised to be held for.",
        value=counts.hold_seconds_total,
    )
    yield CounterMetricFamily(
        "heliotrope_kv_retention_expected_joules",
        "Energy that keeping prefixes is expected to save, less what the memory is worth.",
        value=counts.saved_joules_total,
    )
    yield GaugeMetricFamily(
        "heliotrope_kv_gap_classes", "Models whose time between turns is learned.", value=counts.classes
    )
    yield CounterMetricFamily(
        "heliotrope_kv_forgotten_gap_classes", "Models dropped for room.", value=counts.forgotten_classes_total
    )
