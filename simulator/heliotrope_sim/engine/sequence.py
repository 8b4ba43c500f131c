"""A request as an engine sees it: how many tokens, which blocks; never text."""

from collections.abc import Sequence as Ordered
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from heliotrope_sim.engine.fixed_point import joules
from heliotrope_sim.engine.images import ImageInput
from heliotrope_sim.engine.network import Flow
from heliotrope_sim.engine.transfer_meter import MeteredTransfer


class KvSource(StrEnum):
    """Where KV comes from that is not in the accelerators' memory; the names of vLLM's metrics."""

    HOST = "host"
    P2P = "p2p"
    DISK = "disk"
    UNSPECIFIED = "external_unspecified"


@dataclass(frozen=True, slots=True)
class ExternalKv:
    """KV of the beginning of a prompt that somebody else computed and that has to be loaded.

    Time and energy are those of all its tokens. Where the engine's own cache holds a part of them, only the rest is
    loaded, and takes and draws its proportion.
    """

    tokens: int
    """How many of the prompt's first tokens; all of the prompt leaves one token to compute."""
    load_ns: int
    load_picojoules: int
    source: KvSource = KvSource.UNSPECIFIED
    flowing_ns: int = 0
    """The part of `load_ns` in which bytes flow, at the end of it: it grows where links are shared."""
    links: tuple[str, ...] = ()
    """The names of the ends of links that the bytes take; none: nothing is shared."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is submitted to an engine."""

    request_id: str
    prompt_tokens: int
    output_tokens: int
    """How many tokens it generates before it ends; decided by whoever submits it."""
    block_hashes: Ordered[int] = ()
    """Chained hashes of its leading full KV blocks, prompt first and, where known, output; equal hashes share KV.

    Blocks beyond the last hash are private. Empty: nothing of it is ever shared.
    """
    external: ExternalKv | None = None
    """KV from outside, loaded when it is first admitted; computed like any other if it is preempted later."""
    hold_ns: int | None = None
    """Keep its blocks that long after its last token unless they are released before; None: let them go."""
    images: Ordered[ImageInput] = ()
    """The images of its prompt, in their order."""
    encode_only: bool = False
    """Done with its one token when its images are encoded; nothing of its prompt is computed."""


class Status(IntEnum):
    """Where a sequence is in its life."""

    WAITING = 0
    PREFILLING = 1
    DECODING = 2
    FINISHED = 3
    ABORTED = 4
    LOADING = 5
    """Admitted; its KV is on the way from outside."""
    HELD = 6
    """Finished; its blocks stay for others to read."""


@dataclass(eq=False, slots=True)
class Sequence:
    """The state of one request in an engine. The engine writes it; others read it."""

    request: Request
    queued_ns: int
    status: Status = Status.WAITING
    scheduled_ns: int | None = None
    """When it was first admitted to the batch."""
    first_token_ns: int | None = None
    finished_ns: int | None = None
    cached_tokens: int = 0
    """Prompt tokens that it did not have to compute when it was first admitted: cached here, or loaded."""
    external_tokens: int = 0
    """Those of `cached_tokens` that were loaded from outside."""
    external_source: KvSource | None = None
    """Where they came from."""
    external_failed: bool = False
    """Whether what another engine was to send does not come."""
    generated: int = 0
    preemptions: int = 0
    picojoules: int = 0
    """Its true share of the energy of the steps it took part in; fixed costs of a step are shared evenly."""
    load_picojoules: int = 0
    """The energy of its loads."""

    computed: int = 0
    """Tokens whose KV is in memory."""
    prefill_target: int = 0
    """Tokens whose KV must be in memory before the next token can be sampled."""
    shared_blocks: list[int] = field(default_factory=list)
    """Hashes of the blocks that it holds in the prefix cache."""
    private_blocks: int = 0
    hashed_blocks: int = 0
    """Leading full blocks that were offered to the prefix cache already."""
    loading_tokens: int = 0
    """Tokens on their way from outside."""
    loaded_ns: int = 0
    """When they, and embeddings that are on their way, have arrived."""
    embedded_ns: int = 0
    """When the latter have."""
    flow: Flow | None = None
    """Its transfer, where that shares links."""
    flow_ends_ns: int = 0
    """When that ends, on the engine's clock."""
    metered: MeteredTransfer | None = None
    """The energy of the same."""
    held_until_ns: int = 0
    """When its hold ends by itself."""
    images_to_encode: list[ImageInput] = field(default_factory=list)
    """Images whose embeddings are neither here nor on the way."""

    @property
    def joules(self) -> float:
        """Its true energy so far, that of loads included."""
        return joules(self.picojoules + self.load_picojoules)

    @property
    def block_count(self) -> int:
        """KV blocks it holds."""
        return len(self.shared_blocks) + self.private_blocks
