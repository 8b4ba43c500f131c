"""One engine's part in transfers: what it gives, what it takes, what it shows of both."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from heliotrope.cache.links import Place
from heliotrope_sim.emulator.config import EngineConfig
from heliotrope_sim.emulator.driver import EngineDriver
from heliotrope_sim.emulator.exposition import Page
from heliotrope_sim.emulator.generation import Generation
from heliotrope_sim.emulator.transfer import params
from heliotrope_sim.emulator.transfer.api import TransferApi
from heliotrope_sim.emulator.transfer.config import KvTransferConfig
from heliotrope_sim.emulator.transfer.params import Peer
from heliotrope_sim.emulator.transfer.pulls import Puller
from heliotrope_sim.emulator.transfer.source import KvSourceService
from heliotrope_sim.engine import ImageInput


@dataclass(frozen=True, slots=True)
class TransferNode:
    """An engine that exchanges KV and embeddings with others."""

    config: KvTransferConfig
    source: KvSourceService
    pulls: Puller
    peer: Peer
    """Where others reach it."""
    tensor_parallel: int
    embedding_bytes_per_token: int | None

    @classmethod
    def of(cls, driver: EngineDriver, config: EngineConfig, transfer: KvTransferConfig, port: int) -> "TransferNode":
        """The node of an engine that listens on a port."""
        place = Place(transfer.node, transfer.rack, config.region)
        engine_id = transfer.engine_id or str(uuid.uuid4())
        width = None if config.encoder is None else config.encoder.bytes_per_token
        return cls(
            config=transfer,
            source=KvSourceService(driver, transfer, engine_id, place),
            pulls=Puller(driver, transfer, place, width),
            peer=Peer(transfer.advertised_host or config.host, port),
            tensor_parallel=driver.engine.model.tensor_parallel,
            embedding_bytes_per_token=width,
        )

    async def close(self) -> None:
        """Give up what is under way."""
        await self.pulls.close()

    def api(self, config: EngineConfig) -> TransferApi:
        """Its routes."""
        return TransferApi(self.source, config.encoder)

    def handed_over(self, generation: Generation) -> dict[str, object]:
        """What the answer of a prefill says: where its blocks are, held from now on."""
        tokens = generation.request.prompt_tokens
        blocks = -(-tokens // self.source.layout.block_size)
        return params.held(
            engine_id=self.source.engine_id,
            request_id=self.source.offer(generation),
            peer=self.peer,
            tensor_parallel=self.tensor_parallel,
            # Blocks have no numbers here: those of a request are counted.
            block_ids=range(1, blocks + 1),
            tokens=tokens,
        )

    def embedded(self, images: Sequence[ImageInput]) -> dict[str, object]:
        """What the answer of an encoding says: where the embeddings are."""
        width = self.embedding_bytes_per_token or 0
        return params.encoded(self.peer, {image.mm_hash: image.tokens * width for image in images})

    def write(self, page: Page, label_text: str, *, expired: int) -> None:
        """What it shows on /metrics."""
        self.pulls.counts.write(page, label_text, expired=expired)
        page.family(
            "heliotrope_emulator_sent_bytes_total",
            "counter",
            "Bytes of KV and embeddings that other engines read.",
            [(label_text, self.source.sent_bytes)],
        )
        page.family(
            "heliotrope_emulator_reads_refused_total",
            "counter",
            "Reads of other engines that were refused.",
            [(label_text, self.source.refused)],
        )
