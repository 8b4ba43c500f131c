"""Where KV and embeddings come from that the accelerators lack, and where evicted KV goes."""

from collections.abc import Callable

from heliotrope_sim.engine.encoder import Encoder
from heliotrope_sim.engine.network import Port
from heliotrope_sim.engine.results import ExternalCounters
from heliotrope_sim.engine.sequence import ExternalKv, KvSource, Sequence
from heliotrope_sim.engine.tiers import OffloadTiers
from heliotrope_sim.engine.transfer_meter import TransferMeter


class Sources:
    """Starts loads for admitted sequences and stores of evicted blocks, beside the steps, and accounts for them.

    Args:
        block_size: tokens per KV block.
        tiers: below the accelerators' memory; None: what is evicted is lost.
        transfers: the meter of all transfers.
        counters: what came from where.
        moved: called when the end of a load has changed that others slow down.
    """

    __slots__ = ("_block_size", "_counters", "_moved", "_tiers", "_transfers", "evicted", "port")

    def __init__(
        self,
        block_size: int,
        tiers: OffloadTiers | None,
        transfers: TransferMeter,
        counters: ExternalCounters,
        moved: Callable[[], None],
    ) -> None:
        self.port = Port()
        """The links that loads from other engines share."""
        self._moved = moved
        self._block_size = block_size
        self._tiers = tiers
        self._transfers = transfers
        self._counters = counters
        self.evicted: list[int] = []
        """Blocks that the accelerators' memory has evicted and no tier has taken yet, oldest first."""

    def load(self, sequence: Sequence, now_ns: int, *, first_time: bool) -> bool:
        """Begin to load what is not cached here, from where there is most.

        Args:
            sequence: has its blocks, and has found what is cached here.
            now_ns: the time.
            first_time: whether it is admitted for the first time, and not after a preemption.

        Returns:
            Whether there is something to wait for.
        """
        external = sequence.request.external if first_time and not sequence.external_failed else None
        if (external is None and self._tiers is None) or sequence.request.encode_only:
            return False
        if first_time:
            self._counters.queries += sequence.prefill_target - sequence.computed
        offered = 0 if external is None else min(external.tokens, sequence.prefill_target - 1)
        reach = self._reach(sequence)
        if self._tiers is not None and reach > sequence.computed and reach >= offered:
            tokens, duration_ns, picojoules = self._from_tiers(self._tiers, sequence, reach)
        elif external is not None and offered > sequence.computed:
            tokens, duration_ns, picojoules = _from_outside(external, sequence, offered)
        else:
            return False
        sequence.loading_tokens = sum(tokens.values())
        if external is not None and external.links and external.source in tokens:
            duration_ns = self._begin(sequence, external, now_ns, duration_ns, picojoules)
        else:
            self._transfers.start(now_ns, duration_ns, picojoules)
        sequence.loaded_ns = now_ns + duration_ns
        sequence.load_picojoules += picojoules
        self._counters.load_ns += duration_ns
        for source in tokens:
            self._counters.loads[source] += 1
        if first_time:
            sequence.external_tokens = sequence.loading_tokens
            # The last one is the farthest.
            sequence.external_source = list(tokens)[-1]
            sequence.cached_tokens += sequence.loading_tokens
            for source, count in tokens.items():
                self._counters.hits[source] += count
        return True

    def load_embeddings(self, sequence: Sequence, encoder: Encoder, now_ns: int, *, first_time: bool) -> bool:
        """Begin to load the embeddings that another encoder has; False if there is nothing to load."""
        load_ns, picojoules = encoder.prepare(sequence, may_load=first_time)
        if load_ns is None:
            return False
        self._transfers.start(now_ns, load_ns, picojoules)
        sequence.load_picojoules += picojoules
        sequence.embedded_ns = now_ns + load_ns
        sequence.loaded_ns = max(sequence.loaded_ns, sequence.embedded_ns)
        return True

    def taken(self, sequence: Sequence) -> None:
        """What was loaded for a sequence is used."""
        if sequence.flow is not None:
            self.port.take(sequence.flow)

    def break_off(self, sequence: Sequence, now_ns: int) -> None:
        """What is on its way to a sequence is not wanted any more; it has drawn what it has drawn."""
        if sequence.flow is not None:
            self.port.break_off(sequence.flow, now_ns)

    def _begin(self, sequence: Sequence, external: ExternalKv, now_ns: int, duration_ns: int, picojoules: int) -> int:
        """Begin a transfer over links that others use too; how long it takes if no more of them come."""
        flowing_ns = external.flowing_ns * duration_ns // external.load_ns if external.load_ns else 0

        flow = self.port.begin(
            now_ns, duration_ns - flowing_ns, flowing_ns, external.links, lambda end_ns: self._end_at(sequence, end_ns)
        )
        duration_ns = self.port.end_ns(flow) - now_ns
        sequence.flow = flow
        sequence.flow_ends_ns = now_ns + duration_ns
        sequence.metered = self._transfers.start(now_ns, duration_ns, picojoules)
        return duration_ns

    def _end_at(self, sequence: Sequence, end_ns: int) -> None:
        """Others have come or gone on the links of a sequence's transfer."""
        self._counters.load_ns += end_ns - sequence.flow_ends_ns
        sequence.flow_ends_ns = end_ns
        sequence.loaded_ns = max(end_ns, sequence.embedded_ns)
        if sequence.metered is not None:
            self._transfers.end_at(sequence.metered, end_ns)
        self._moved()

    def offload(self, now_ns: int) -> None:
        """Write what was evicted to the tiers below."""
        if self._tiers is None or not self.evicted:
            return
        plan = self._tiers.store(self.evicted)
        self.evicted.clear()
        if plan.count:
            self._counters.offload_stores.add(plan.count, plan.duration_ns, plan.picojoules)
            self._transfers.start(now_ns, plan.duration_ns, plan.picojoules)

    def _reach(self, sequence: Sequence) -> int:
        """Tokens of a sequence that are here or in the tiers, without a gap; the last one is always computed."""
        if self._tiers is None:
            return sequence.computed
        first, limit = sequence.computed // self._block_size, (sequence.prefill_target - 1) // self._block_size
        return self._tiers.match(sequence.request.block_hashes, first, limit) * self._block_size

    def _from_tiers(self, tiers: OffloadTiers, sequence: Sequence, reach: int) -> tuple[dict[KvSource, int], int, int]:
        first, stop = sequence.computed // self._block_size, reach // self._block_size
        plan = tiers.load(sequence.request.block_hashes[first:stop])
        self._counters.offload_loads.add(plan.count, plan.duration_ns, plan.picojoules)
        tokens = {source: blocks * self._block_size for source, blocks in plan.blocks.items()}
        return tokens, plan.duration_ns, plan.picojoules


def _from_outside(external: ExternalKv, sequence: Sequence, offered: int) -> tuple[dict[KvSource, int], int, int]:
    missing = external.tokens - sequence.computed
    return (
        {external.source: offered - sequence.computed},
        external.load_ns * missing // external.tokens,
        external.load_picojoules * missing // external.tokens,
    )
