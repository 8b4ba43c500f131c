"""What an engine reports: its steps, its states of sleep, its counts."""

from collections import Counter
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from heliotrope_sim.engine.fixed_point import joules, seconds
from heliotrope_sim.engine.sequence import KvSource, Sequence


class Phase(StrEnum):
    """What a step does."""

    PREFILL = "prefill"
    DECODE = "decode"
    ENCODE = "encode"


class SleepLevel(IntEnum):
    """Depths of vLLM's sleep mode."""

    PAUSED = 0
    """Nothing is scheduled; weights and KV stay."""
    WEIGHTS_OFFLOADED = 1
    """Weights in host memory, KV dropped."""
    DISCARDED = 2
    """Weights and KV dropped."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """One step: what it takes, draws and yields. Its tokens exist from `end_ns` on."""

    phase: Phase
    start_ns: int
    duration_ns: int
    picojoules: int
    tokens: int
    """Tokens computed: prompt tokens of a prefill, one per sequence of a decode, those of encoded images."""
    participants: int
    kv_tokens: int
    """Cached tokens that the step read."""
    emitted: tuple[Sequence, ...]
    """Sequences that got one token each."""
    first_tokens: tuple[Sequence, ...]
    """Those of `emitted` for which it was the first."""
    finished: tuple[Sequence, ...]
    """Those of `emitted` for which it was the last."""
    preempted: tuple[Sequence, ...]
    """Sequences that went back to the queue to make room."""

    @property
    def end_ns(self) -> int:
        """When the step ends and its tokens exist."""
        return self.start_ns + self.duration_ns

    @property
    def duration_seconds(self) -> float:
        """How long it takes."""
        return seconds(self.duration_ns)

    @property
    def joules(self) -> float:
        """What all accelerators of the engine draw for it."""
        return joules(self.picojoules)


@dataclass(slots=True)
class Counters:
    """What an engine has done since its start."""

    prefix_queries: int = 0
    """Prompt tokens looked up in the prefix cache."""
    prefix_hits: int = 0
    preemptions: int = 0
    prefill_tokens: int = 0
    """Tokens computed by prefill steps, recomputation included."""
    decode_tokens: int = 0
    prefill_ns: int = 0
    decode_ns: int = 0


class BlockTransfers:
    """Transfers of blocks in one direction."""

    __slots__ = ("duration_ns", "picojoules", "sizes")

    def __init__(self) -> None:
        self.duration_ns = 0
        self.picojoules = 0
        self.sizes: Counter[int] = Counter()
        """How many transfers there were of each number of blocks."""

    @property
    def blocks(self) -> int:
        """Blocks altogether."""
        return sum(size * count for size, count in self.sizes.items())

    def add(self, blocks: int, duration_ns: int, picojoules: int) -> None:
        """Count one transfer."""
        self.sizes[blocks] += 1
        self.duration_ns += duration_ns
        self.picojoules += picojoules


class ExternalCounters:
    """What came from outside the accelerators' memory since the start, in tokens unless named otherwise."""

    __slots__ = ("expired_holds", "hits", "load_ns", "loads", "offload_loads", "offload_stores", "queries")

    def __init__(self) -> None:
        self.queries = 0
        """Prompt tokens that the prefix cache lacked, of an engine or a request that has another source."""
        self.hits = dict.fromkeys(KvSource, 0)
        """Prompt tokens that each source supplied."""
        self.loads = dict.fromkeys(KvSource, 0)
        """How many loads."""
        self.load_ns = 0
        """How long they took together."""
        self.offload_loads = BlockTransfers()
        """What came back from the tiers below."""
        self.offload_stores = BlockTransfers()
        """What the accelerators' memory evicted into them."""
        self.expired_holds = 0
        """Held sequences that nobody released in time."""
