"""Pulling KV blocks and embeddings out of other engines' memory."""

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass

from heliotrope.cache.links import Link, LinkClass, Place
from heliotrope.units import BITS_PER_BYTE
from heliotrope_sim.emulator.driver import EngineDriver
from heliotrope_sim.emulator.errors import load_failed
from heliotrope_sim.emulator.generation import Generation
from heliotrope_sim.emulator.transfer import wire
from heliotrope_sim.emulator.transfer.client import PeerClient, PullError
from heliotrope_sim.emulator.transfer.config import KvTransferConfig, LoadFailurePolicy
from heliotrope_sim.emulator.transfer.counts import FailureReason, TransferCounts
from heliotrope_sim.emulator.transfer.params import KvTransfer, Peer, RemotePrefill
from heliotrope_sim.engine import ExternalKv, KvSource
from heliotrope_sim.engine.fixed_point import nanoseconds, picojoules

logger = logging.getLogger(__name__)

CLOSE_SECONDS = 0.2
# A reader gives a sign of itself this often in the time that it is granted.
SIGNS_PER_LEASE = 3


@dataclass(frozen=True, slots=True)
class Pull:
    """KV that another engine holds for a request of this one."""

    peer: Peer
    hold_id: str
    reader: str
    link: Link
    external: ExternalKv
    lease_seconds: float
    required: bool
    """Whether the request is to fail where the policy says so; a cached prefix is only a help."""


class Puller:
    """One engine's reads of others.

    Args:
        driver: the engine.
        config: its links and policies.
        place: where it is.
        embedding_bytes_per_token: of its model; None: it takes no images.
    """

    def __init__(
        self,
        driver: EngineDriver,
        config: KvTransferConfig,
        place: Place,
        embedding_bytes_per_token: int | None,
    ) -> None:
        self.counts = TransferCounts()
        self._driver = driver
        self._name = driver.config.name
        self._config = config
        self._place = place
        self._location = wire.Location(node=place.node, rack=place.rack, region=place.region)
        self._client = PeerClient(config.handshake_timeout_seconds)
        self._embedding_bytes_per_token = embedding_bytes_per_token
        model = driver.engine.model
        self._layout = wire.Layout(
            model=model.model, block_size=driver.engine.kv.block_size, bytes_per_token=model.kv_bytes_per_token
        )
        self._tasks: set[asyncio.Task[None]] = set()

    async def kv(self, transfer: KvTransfer, prompt_tokens: int, hashes: Sequence[int], reader: str) -> Pull | None:
        """Arrange for the KV that a request names; None if it has to be computed here.

        Args:
            transfer: what the request says.
            prompt_tokens: length of its prompt.
            hashes: of its full blocks.
            reader: id of its response.

        Raises:
            ApiError: 500 if KV of a remote prefill does not come and the policy is to fail.
        """
        if not self._config.consumes:
            return None
        if transfer.unusable is not None:
            self.counts.failed(FailureReason.PARAMS)
            logger.warning("kv_transfer_params cannot be used: %s", transfer.unusable)
        full = prompt_tokens // self._layout.block_size
        cached = self._driver.engine.kv.match(hashes, full) * self._layout.block_size
        try:
            if transfer.remote_prefill is not None:
                return await self._prefilled(transfer.remote_prefill, prompt_tokens, cached, hashes[:full], reader)
            if transfer.kv_source is not None:
                return await self._cached(transfer.kv_source, cached, hashes[:full], reader)
        except PullError as error:
            self.counts.failed(error.reason)
            logger.warning("KV of a request does not come: %s", error)
            if transfer.remote_prefill is not None and self._config.kv_load_failure_policy is LoadFailurePolicy.FAIL:
                raise load_failed() from None
        return None

    def follow(self, pull: Pull, generation: Generation) -> None:
        """Keep the source's hold until the generation has what it needs, then let go."""
        assert generation.kv_settled is not None
        self._start(self._follow(pull, generation, generation.kv_settled))

    def decline(self, transfer: KvTransfer, reader: str) -> None:
        """Tell a prefiller that nobody will read what it holds for a request that is not served."""
        held = transfer.remote_prefill
        if held is not None and self._config.consumes:
            self._start(self._release_hold(held.peer, held.request_id, reader, 0))

    def let_go(self, pull: Pull) -> None:
        """Tell the source that nothing will be read."""
        self._start(self._release(pull, 0))

    async def embeddings(
        self, peers: Mapping[str, Peer], needed: Mapping[str, int], reader: str
    ) -> dict[str, tuple[int, int]]:
        """Arrange for embeddings that encoders have.

        Args:
            peers: where embeddings are said to be, by hash of their image.
            needed: tokens of the images that are not here, by hash.
            reader: id of the response.

        Returns:
            Time (ns) and energy (pJ) of loading each that can be loaded, by hash.
        """
        if not self._config.consumes or self._embedding_bytes_per_token is None:
            return {}
        asked: dict[Peer, list[str]] = {}
        for mm_hash in needed:
            if mm_hash in peers:
                asked.setdefault(peers[mm_hash], []).append(mm_hash)
        granted = await asyncio.gather(*(self._embeddings_of(p, hashes, reader) for p, hashes in asked.items()))
        loads: dict[str, tuple[int, int]] = {}
        for hashes, answer in zip(asked.values(), granted, strict=True):
            for mm_hash in hashes:
                if answer is None or answer.tokens.get(mm_hash) != needed[mm_hash]:
                    self.counts.failed(FailureReason.EMBEDDING)
                    continue
                _, link = self._config.link_between(self._place, answer.location.place())
                loads[mm_hash] = self._cost(link, needed[mm_hash] * self._embedding_bytes_per_token)
        return loads

    async def close(self) -> None:
        """Let what is under way end, but not for long."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_SECONDS)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.close()

    async def _prefilled(
        self, prefill: RemotePrefill, prompt_tokens: int, cached: int, hashes: Sequence[int], reader: str
    ) -> Pull | None:
        request = wire.ReadRequest(
            layout=self._layout,
            engine_id=prefill.engine_id,
            request_id=prefill.request_id,
            prompt_tokens=prompt_tokens,
            last_block=hashes[-1] if hashes else None,
        )
        try:
            granted = await self._client.post(prefill.peer, wire.READ_PATH, request, wire.Granted)
        except asyncio.CancelledError:
            # The client has gone; the prefiller need not hold on for nobody.
            self.decline(KvTransfer(remote_prefill=prefill), reader)
            raise
        tokens = min(granted.tokens, prompt_tokens, prefill.tokens or prompt_tokens)
        return self._arranged(prefill.peer, granted, tokens, cached, reader, required=True)

    async def _cached(self, source: Peer, cached: int, hashes: Sequence[int], reader: str) -> Pull | None:
        if not hashes[cached // self._layout.block_size :]:
            return None
        request = wire.LookupRequest(layout=self._layout, blocks=list(hashes), reader=reader)
        granted = await self._client.post(source, wire.LOOKUP_PATH, request, wire.Granted)
        tokens = min(granted.tokens, len(hashes) * self._layout.block_size)
        return self._arranged(source, granted, tokens, cached, reader, required=False)

    def _arranged(
        self, peer: Peer, granted: wire.Granted, tokens: int, cached: int, reader: str, *, required: bool
    ) -> Pull | None:
        kind, link = self._config.link_between(self._place, granted.location.place())
        load_ns, drawn = self._cost(link, tokens * self._layout.bytes_per_token)
        flowing_ns = load_ns - nanoseconds(link.latency_seconds)
        load_ns += nanoseconds(granted.delay_seconds)
        side = "node" if kind is LinkClass.NODE else "network"
        links = (f"out of {peer.host}:{peer.port} by {side}", f"into {self._name} by {side}")
        external = ExternalKv(max(1, tokens), load_ns, drawn, KvSource.P2P, flowing_ns, links)
        pull = Pull(peer, granted.hold_id, reader, link, external, granted.lease_seconds, required)
        missing = tokens - cached
        if missing <= 0 or missing < self._config.kv_recompute_threshold:
            self.let_go(pull)
            return None
        return pull

    def _cost(self, link: Link, size_bytes: int) -> tuple[int, int]:
        """Time (ns) and energy (pJ) of a read: the reader's own and that of the network between."""
        joules_per_bit = link.receiver_joules_per_bit + link.network_joules_per_bit
        return (
            nanoseconds(link.latency_seconds + size_bytes / link.bytes_per_second),
            picojoules(joules_per_bit * size_bytes * BITS_PER_BYTE),
        )

    async def _follow(self, pull: Pull, generation: Generation, settled: asyncio.Future[None]) -> None:
        pause = pull.lease_seconds / SIGNS_PER_LEASE / self._driver.config.time_scale
        while not settled.done():
            await asyncio.wait([settled], timeout=pause)
            if not settled.done() and not await self._renewed(pull, generation):
                return
        sequence = generation.sequence
        tokens = 0
        # What its own tiers had more of came from there.
        if sequence is not None and sequence.external_tokens and sequence.external_source is pull.external.source:
            tokens = pull.external.tokens - (sequence.cached_tokens - sequence.external_tokens)
            # Others on the same links may have made it longer than it would have been alone.
            alone_ns = pull.external.load_ns * tokens // pull.external.tokens
            duration_ns = alone_ns if sequence.flow is None else sequence.flow.end_ns - sequence.flow.start_ns
            blocks = -(-tokens // self._layout.block_size)
            self.counts.moved(duration_ns, pull.link.latency_seconds, tokens * self._layout.bytes_per_token, blocks)
        await self._release(pull, tokens)

    async def _renewed(self, pull: Pull, generation: Generation) -> bool:
        """Give a sign of life; False if the source has none to give back, and its KV is lost."""
        try:
            await self._client.post(pull.peer, wire.RENEW_PATH, wire.RenewRequest(hold_id=pull.hold_id), wire.Done)
        except PullError as error:
            self.counts.failed_notifications += 1
            if generation.kv_settled is not None and generation.kv_settled.done():
                return True
            self.counts.failed(error.reason)
            logger.warning("KV of a request is lost: %s", error)
            if pull.required and self._config.kv_load_failure_policy is LoadFailurePolicy.FAIL:
                self._driver.fail(generation)
            else:
                self._driver.give_up_load(generation)
            return False
        return True

    async def _release(self, pull: Pull, tokens: int) -> None:
        await self._release_hold(pull.peer, pull.hold_id, pull.reader, tokens)

    async def _release_hold(self, peer: Peer, hold_id: str, reader: str, tokens: int) -> None:
        request = wire.ReleaseRequest(hold_id=hold_id, reader=reader, tokens=tokens, location=self._location)
        try:
            await self._client.post(peer, wire.RELEASE_PATH, request, wire.Done)
        except PullError as error:
            self.counts.failed_notifications += 1
            logger.warning("a hold was not released: %s", error)

    async def _embeddings_of(self, peer: Peer, hashes: list[str], reader: str) -> wire.EmbeddingsGranted | None:
        try:
            request = wire.EmbeddingsRequest(mm_hashes=hashes, reader=reader, location=self._location)
            return await self._client.post(peer, wire.EMBEDDINGS_PATH, request, wire.EmbeddingsGranted)
        except PullError as error:
            logger.warning("embeddings do not come: %s", error)
            return None

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
