"""What an engine's page of metrics says of KV beyond its own cache: other sources, tiers, transfers, events."""

from collections.abc import Iterable

from heliotrope_sim.emulator.exposition import Histogram, Page
from heliotrope_sim.emulator.kv_event_publisher import KvEventPublisher
from heliotrope_sim.engine import BlockTransfers, Engine, KvSource
from heliotrope_sim.engine.fixed_point import joules, seconds

# Bucket bounds of vLLM 0.32.
_TRANSFER_BYTES = (1e6, 5e6, 10e6, 20e6, 40e6, 60e6, 80e6, 100e6, 150e6, 200e6)


def tier_blocks(engine: Engine) -> dict[str, int]:
    """Blocks in each tier below the accelerators' memory."""
    if engine.tiers is None:
        return {}
    return {spec.source.value: engine.tiers.blocks(index) for index, spec in enumerate(engine.tiers.specs)}


class KvMetrics:
    """Reads the engine's counts when the page is made."""

    def __init__(self, engine: Engine, events: KvEventPublisher | None, label_text: str) -> None:
        self._engine = engine
        self._events = events
        self._labels = label_text
        model = engine.model
        self._block_bytes = model.kv_bytes_per_token * model.block_size

    @property
    def sources(self) -> Iterable[tuple[str, int]]:
        """Prompt tokens that were not computed, by where they came from."""
        yield "device", self._engine.counters.prefix_hits
        for source, tokens in self._engine.external.hits.items():
            yield source.value, tokens

    def write(self, page: Page, now_ns: int) -> None:
        """Everything at an engine time."""
        self._external(page)
        if self._engine.tiers is not None:
            external = self._engine.external
            self._offload(page, "load", "loaded", "from offload storage to GPU", external.offload_loads)
            self._offload(page, "store", "stored", "from GPU to offload storage", external.offload_stores)
            self._deprecated(page)
            self._tiers(page)
        self._transfers(page, now_ns)
        if self._events is not None:
            self._published(page, self._events)

    def _external(self, page: Page) -> None:
        external = self._engine.external
        for name, what, tokens in (
            ("queries", "queries", external.queries),
            ("hits", "hits", sum(external.hits.values())),
        ):
            unit = "queried" if name == "queries" else "cached"
            page.family(
                f"vllm:external_prefix_cache_{name}_total",
                "counter",
                f"External prefix cache {what} from KV connector cross-instance cache sharing, in terms of number of "
                f"{unit} tokens.",
                [(self._labels, tokens)],
            )

    def _offload(self, page: Page, name: str, done: str, way: str, did: BlockTransfers) -> None:
        common = self._labels
        page.family(
            f"vllm:kv_offload_{name}_bytes_total",
            "counter",
            f"Total bytes {done} {way}.",
            [(common, did.blocks * self._block_bytes)],
        )
        page.family(
            f"vllm:kv_offload_{name}_time_total",
            "counter",
            f"Total {name} time {way}, in seconds.",
            [(common, seconds(did.duration_ns))],
        )
        page.histogram(
            f"vllm:kv_offload_{name}_size",
            f"Histogram of KV offload {name} operation size, in bytes.",
            common,
            self._sizes(did),
        )

    def _deprecated(self, page: Page) -> None:
        """Totals under the names of earlier versions, which vLLM 0.32 still shows."""
        ways = [
            (f'{self._labels},transfer_type="{name}"', did)
            for name, did in (
                ("CPU_to_GPU", self._engine.external.offload_loads),
                ("GPU_to_CPU", self._engine.external.offload_stores),
            )
        ]
        page.family(
            "vllm:kv_offload_total_bytes_total",
            "counter",
            "Number of bytes offloaded by KV connector",
            [(way, did.blocks * self._block_bytes) for way, did in ways],
        )
        page.family(
            "vllm:kv_offload_total_time_total",
            "counter",
            "Total time measured by all KV offloading operations",
            [(way, seconds(did.duration_ns)) for way, did in ways],
        )

    def _tiers(self, page: Page) -> None:
        page.family(
            "heliotrope_emulator_offload_blocks",
            "gauge",
            "KV blocks in a tier below the accelerators' memory.",
            [(f'{self._labels},tier="{tier}"', blocks) for tier, blocks in tier_blocks(self._engine).items()],
        )

    def _transfers(self, page: Page, now_ns: int) -> None:
        engine = self._engine
        page.family(
            "heliotrope_emulator_transfer_energy_joules_total",
            "counter",
            "Energy of KV transfers: links, host memory and disks; in no GPU counter.",
            [(self._labels, joules(engine.transfers.picojoules(now_ns)))],
        )
        page.family(
            "heliotrope_emulator_kv_loads_total",
            "counter",
            "Loads of KV from outside the accelerators' memory, by source.",
            [(f'{self._labels},source="{source.value}"', engine.external.loads[source]) for source in KvSource],
        )
        page.family(
            "heliotrope_emulator_held_requests",
            "gauge",
            "Finished requests whose blocks are held for others.",
            [(self._labels, engine.num_held)],
        )
        page.family(
            "heliotrope_emulator_expired_holds_total",
            "counter",
            "Holds that nobody released in time.",
            [(self._labels, engine.external.expired_holds)],
        )

    def _published(self, page: Page, events: KvEventPublisher) -> None:
        for name, what, count in (
            ("published", "Batches of KV events published.", events.published),
            ("dropped", "Batches of KV events that some subscriber lost because it did not keep up.", events.dropped),
            ("forgotten", "Batches of KV events that can no longer be replayed.", events.forgotten),
        ):
            page.family(f"heliotrope_emulator_kv_event_batches_{name}_total", "counter", what, [(self._labels, count)])

    def _sizes(self, did: BlockTransfers) -> Histogram:
        histogram = Histogram(_TRANSFER_BYTES)
        for blocks, count in did.sizes.items():
            histogram.observe(blocks * self._block_bytes, count)
        return histogram
