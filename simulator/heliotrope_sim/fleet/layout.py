"""Where the compiled kernel keeps what: columns of its whole-number matrices.

One row per engine and one per request lie together in memory, because a step reads many columns of few rows. Times are
ns, energies pJ; -1 is nothing, nobody, never.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

NOBODY = -1

# Columns of `Fleet.engines`.
SETTLED = 0
"""Up to when time is simulated: the end of the step in progress, or of the last one."""
DECODES = 1
"""Decode steps so far."""
BATCH = 2
"""Sequences that decode, those that have just finished among them until the next step."""
KV_TOKENS = 3
"""Their tokens in memory."""
DECODE_HEAD = 4
"""The oldest of them; linked by `NEXT` and `BEFORE`."""
DECODE_TAIL = 5
PREFILL_HEAD = 6
PREFILL_TAIL = 7
PREFILL_COUNT = 8
PREFILL_LEFT = 9
"""Tokens that admitted sequences still have to prefill."""
PREFILL_DONE = 10
"""Their tokens in memory."""
WAIT_HEAD = 11
WAIT_TAIL = 12
WAIT_COUNT = 13
WAIT_TOKENS = 14
DECODE_IS_NEXT = 15
FREE_BLOCKS = 16
SHARES = 17
"""Sum over all decode steps of what each member was charged, without its cached tokens. Differences count."""
JOINS = 18
"""Sequences that joined the batch so far."""
FINISHING = 19
"""Entries in the engine's heap."""
NEWCOMERS = 20
"""Sequences that joined without prefill and have no token yet."""
AHEAD = 21
"""Those of them that hold the block of their next token already."""
ROW = 22
"""Of `Fleet.rates` and `Fleet.charges`."""
STEP_NS = 23
STEP_PICOJOULES = 24
STEP_KIND = 25
PREFILL_PICOJOULES = 26
"""Since energy was last read, as the next five."""
DECODE_PICOJOULES = 27
IDLE_PICOJOULES = 28
ASLEEP_PICOJOULES = 29
BUSY_NS = 30
AWAKE_NS = 31
PREFILL_NS = 32
"""Since the start."""
STATE = 33
READY = 34
"""When it wakes."""
IDLE_MILLIWATTS = 35
ASLEEP_MILLIWATTS = 36
"""At the depth that it is told to go to; while it wakes, of the idle engine."""
TAKES = 37
"""Whether requests may be sent to it."""
ROLE = 38
HOLD_HEAD = 39
"""Finished sequences whose blocks are being read, in the order of the ends of that."""
LRU_HEAD = 40
LRU_TAIL = 41
LRU_COUNT = 42
"""Cached blocks that nobody holds."""
NODE_FREE = 43
DEPTH = 44
SITE = 45
SLEEP_MILLIWATTS = 46
"""At the depth that it goes to when it has finished what is in flight."""
CLOCK_MHZ = 47
OUTPUTS_SHARED = 48
"""Sequences in the batch with hashes of blocks that decoding fills."""
SLEPT = 49
"""Since when it sleeps as deep as it does."""
ENGINE_COLUMNS = 50

# Values of STATE.
AWAKE = 0
DRAINING = 1
"""Finishes what is in flight, then sleeps."""
ASLEEP = 2
WAKING = 3

# Values of ROLE.
BOTH = 0
PREFILLS = 1
DECODES_ONLY = 2

# Values of STEP_KIND.
NO_STEP = 0
PREFILL_STEP = 1
DECODE_STEP = 2

# Columns of `Fleet.requests`.
QUEUED = 0
PROMPT = 1
OUTPUT = 2
"""Tokens that the engine generates: 1 on a prefill engine."""
GENERATED = 3
"""When it joined the batch, or was preempted."""
COMPUTED = 4
"""Tokens in memory when it joined the batch; before that, now."""
JOINED_AT = 5
"""`DECODES` at that time."""
JOINED_SHARES = 6
"""`SHARES` at that time."""
DRAWN = 7
FIRST_TOKEN = 8
FINISHED = 9
NEXT = 10
BEFORE = 11
ENGINE = 12
CACHED = 13
PREEMPTIONS = 14
ADMITTED_BLOCKS = 15
HASHED_BLOCKS = 16
"""Leading full blocks that were offered to the prefix cache."""
SHARED_BLOCKS = 17
"""Blocks of it that the prefix cache knows."""
LOADED = 18
"""Leading tokens that come with it from a prefill engine."""
TARGET = 19
"""Tokens that must be in memory before the next token."""
HELD_UNTIL = 20
HOLD_NS = 21
"""How long its blocks are read after its end; -1: not at all."""
SCHEDULED = 22
ENDING = 23
REQUEST_COLUMNS = 24

# Columns of `Fleet.rates`.
KNEE = 0
BELOW = 1
ABOVE = 2
BASE = 3
PER_REQUEST = 4
PER_SQUARE = 5
ALPHA = 6
BETA = 9
RATE_COLUMNS = 12

# Columns of `Fleet.charges`.
PREFILL_BASE = 0
PREFILL_PER_TOKEN = 1
PREFILL_PER_SQUARE = 2
DECODE_BASE = 3
DECODE_PER_REQUEST = 4
DECODE_PER_CACHED = 5
BLOCK_SIZE = 6
BLOCKS = 7
MAX_SEQUENCES = 8
MAX_TOKENS = 9
CHARGE_COLUMNS = 10

# Columns of `Fleet.sites`.
FIRST_ENGINE = 0
END_ENGINE = 1
NODE_ENGINES = 2
CURSOR = 3
DECODE_CURSOR = 4
DISPATCH = 5
SPLIT = 6
"""Whether prefill and decode are apart."""
SITE_COLUMNS = 7

# Last axis of `Fleet.nodes`, the blocks that an engine's prefix cache knows.
KEY = 0
HOLDERS = 1
LRU_BEFORE = 2
LRU_NEXT = 3
CHAIN = 4
NODE_COLUMNS = 5


class Fleet(NamedTuple):
    """All state of the kernel."""

    engines: NDArray[np.int64]
    requests: NDArray[np.int64]
    rates: NDArray[np.float64]
    charges: NDArray[np.int64]
    sites: NDArray[np.int64]
    heap: NDArray[np.int64]
    """Shape (engines, batch, 2): (finishing decode step and order of joining, request)."""
    residues: NDArray[np.int64]
    """Shape (engines, block size): how many of the batch start a block when `DECODES` leaves this remainder."""
    nodes: NDArray[np.int32]
    """Shape (engines, blocks, columns)."""
    buckets: NDArray[np.int32]
    """Shape (engines, a power of 2): heads of chains of nodes by key."""
    hashes: NDArray[np.int32]
    """Keys of all requests' blocks."""
    held: NDArray[np.int32]
    """The node that a request holds for each of `hashes`; -1: none, the block is private."""
    offsets: NDArray[np.int64]
    """Request i's are `offsets[i]:offsets[i + 1]`; of length 1: no request has any."""
