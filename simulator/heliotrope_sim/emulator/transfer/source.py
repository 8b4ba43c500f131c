"""What others may read from an engine: blocks held after a prefill, cached prefixes, embeddings."""

import itertools
from dataclasses import dataclass
from http import HTTPStatus

from heliotrope.cache.links import Place
from heliotrope.units import BITS_PER_BYTE
from heliotrope_sim.emulator.driver import EngineDriver
from heliotrope_sim.emulator.errors import ApiError
from heliotrope_sim.emulator.generation import Generation
from heliotrope_sim.emulator.multimodal.config import EncoderConfig
from heliotrope_sim.emulator.transfer.config import KvTransferConfig
from heliotrope_sim.emulator.transfer.wire import (
    EmbeddingsGranted,
    EmbeddingsRequest,
    Granted,
    Layout,
    Location,
    LookupRequest,
    ReadRequest,
    ReleaseRequest,
)
from heliotrope_sim.engine import Sequence, Status
from heliotrope_sim.engine.fixed_point import nanoseconds, picojoules, seconds


@dataclass(frozen=True, slots=True)
class _Held:
    request_id: str
    """The engine's own."""
    sequence: Sequence
    response_id: str | None
    """Of the request that computed the blocks; None: they were cached."""


class KvSourceService:
    """One engine's memory, as far as others may read it.

    Args:
        driver: the engine.
        config: how long it holds, over which links it sends.
        engine_id: of this start.
        place: where it is.
    """

    def __init__(self, driver: EngineDriver, config: KvTransferConfig, engine_id: str, place: Place) -> None:
        self.engine_id = engine_id
        self.layout = Layout(
            model=driver.engine.model.model,
            block_size=driver.engine.kv.block_size,
            bytes_per_token=driver.engine.model.kv_bytes_per_token,
        )
        self._driver = driver
        self._config = config
        self._place = place
        self._serial = itertools.count(1)
        self._held: dict[str, _Held] = {}
        """By hold id."""
        self.refused = 0
        """Reads of what is not there, or not what the reader thinks."""
        self.sent_bytes = 0

    @property
    def location(self) -> Location:
        """Where it is, for readers."""
        return Location(node=self._place.node, rack=self._place.rack, region=self._place.region)

    @property
    def hold_ns(self) -> int:
        """How long blocks are held without a sign of the reader."""
        return nanoseconds(self._config.kv_lease_duration)

    def offer(self, generation: Generation) -> str:
        """Let others read a generation that has just ended; the id to ask for."""
        assert generation.sequence is not None
        response_id, request_id = generation.identity.response_id, generation.request.request_id
        hold_id = f"{response_id}-{request_id}"
        self._remember(hold_id, _Held(request_id, generation.sequence, response_id))
        return hold_id

    def read(self, request: ReadRequest) -> Granted:
        """Grant the blocks of a held request.

        Raises:
            ApiError: 404 if they are not held, 409 if they are not what the reader needs.
        """
        self._check_layout(request.layout)
        if request.engine_id != self.engine_id:
            raise self._refusal(HTTPStatus.CONFLICT, "engine_id is that of another engine or an earlier start")
        held = self._found(request.request_id).sequence.request
        blocks = held.prompt_tokens // self.layout.block_size
        last_block = held.block_hashes[blocks - 1] if blocks else None
        if held.prompt_tokens != request.prompt_tokens or last_block != request.last_block:
            raise self._refusal(HTTPStatus.CONFLICT, "the blocks are those of another prompt")
        return self._granted(request.request_id, held.prompt_tokens)

    def look_up(self, request: LookupRequest) -> Granted:
        """Grant as much of a prompt's beginning as is cached; it stays cached.

        Raises:
            ApiError: 404 if nothing is, 409 if the engines do not fit.
        """
        self._check_layout(request.layout)
        request_id = f"p2p-{next(self._serial)}"
        sequence = self._driver.hold_cached(request_id, request.blocks, self.hold_ns, request.reader)
        if sequence is None:
            raise ApiError(HTTPStatus.NOT_FOUND, "nothing of this prompt is cached")
        self._remember(request_id, _Held(request_id, sequence, None))
        return self._granted(request_id, sequence.computed, seconds(sequence.loaded_ns - sequence.queued_ns))

    def renew(self, hold_id: str) -> None:
        """Hold on for a reader that still waits.

        Raises:
            ApiError: 404 if it is not held.
        """
        self._driver.renew(self._found(hold_id).request_id, self.hold_ns)

    def release(self, request: ReleaseRequest) -> None:
        """Let go of what was read, and account for sending it.

        Raises:
            ApiError: 404 if it is not held.
        """
        held = self._found(request.hold_id)
        del self._held[request.hold_id]
        self._driver.release(held.request_id)
        tokens = min(request.tokens, held.sequence.request.prompt_tokens)
        sent_bytes = tokens * self.layout.bytes_per_token
        self._account(sent_bytes, request.location, held.response_id or request.reader)

    def embeddings(self, request: EmbeddingsRequest, config: EncoderConfig) -> EmbeddingsGranted:
        """Grant embeddings, and account for sending them."""
        encoder = self._driver.engine.encoder
        found = {}
        for mm_hash in dict.fromkeys(request.mm_hashes):
            tokens = encoder.cache.tokens_of(mm_hash) if encoder is not None else None
            if tokens is not None:
                found[mm_hash] = tokens
        self._account(sum(found.values()) * config.bytes_per_token, request.location, request.reader)
        return EmbeddingsGranted(tokens=found, location=self.location)

    def _account(self, sent_bytes: int, reader_at: Location, response_id: str) -> None:
        if not sent_bytes:
            return
        _, link = self._config.link_between(self._place, reader_at.place())
        drawn = picojoules(link.sender_joules_per_bit * sent_bytes * BITS_PER_BYTE)
        self.sent_bytes += sent_bytes
        self._driver.charge_sent(response_id, drawn)

    def _granted(self, hold_id: str, tokens: int, delay_seconds: float = 0.0) -> Granted:
        return Granted(
            hold_id=hold_id,
            tokens=tokens,
            location=self.location,
            delay_seconds=delay_seconds,
            lease_seconds=self._config.kv_lease_duration,
        )

    def _check_layout(self, layout: Layout) -> None:
        if layout != self.layout:
            raise self._refusal(HTTPStatus.CONFLICT, "model, block size or bytes per token differ")

    def _found(self, hold_id: str) -> _Held:
        self._forget_ended()
        held = self._held.get(hold_id)
        if held is None:
            raise self._refusal(HTTPStatus.NOT_FOUND, "no blocks are held under this id")
        return held

    def _refusal(self, status: HTTPStatus, reason: str) -> ApiError:
        self.refused += 1
        return ApiError(status, reason)

    def _remember(self, hold_id: str, held: _Held) -> None:
        self._forget_ended()
        self._held[hold_id] = held

    def _forget_ended(self) -> None:
        over = (Status.FINISHED, Status.ABORTED)
        for hold_id in [h for h, held in self._held.items() if held.sequence.status in over]:
            del self._held[hold_id]
