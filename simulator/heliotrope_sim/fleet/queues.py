"""Compiled: the order of an engine's sequences. Lists are linked through the requests, the heap knows who ends next."""

from heliotrope.compiled import inner
from heliotrope_sim.fleet.layout import (
    BEFORE,
    DECODE_HEAD,
    DECODE_TAIL,
    FINISHING,
    HELD_UNTIL,
    HOLD_HEAD,
    NEXT,
    NOBODY,
    PREFILL_HEAD,
    PREFILL_TAIL,
    WAIT_HEAD,
    WAIT_TAIL,
    Fleet,
)

JOIN_BITS = 31
"""Of a heap key: the order of joining, below the decode step at whose end a sequence finishes."""
JOIN_MASK = (1 << JOIN_BITS) - 1


@inner
def append(fleet: Fleet, e: int, r: int, head: int, tail: int) -> None:
    """Put a request at the end of one of an engine's lists."""
    engines, requests = fleet.engines, fleet.requests
    last = engines[e, tail]
    requests[r, NEXT] = NOBODY
    requests[r, BEFORE] = last
    if last == NOBODY:
        engines[e, head] = r
    else:
        requests[last, NEXT] = r
    engines[e, tail] = r


@inner
def unlink(fleet: Fleet, e: int, r: int, head: int, tail: int) -> None:
    """Take a request out of one of an engine's lists."""
    engines, requests = fleet.engines, fleet.requests
    before, after = requests[r, BEFORE], requests[r, NEXT]
    if before == NOBODY:
        engines[e, head] = after
    else:
        requests[before, NEXT] = after
    if after == NOBODY:
        engines[e, tail] = before
    else:
        requests[after, BEFORE] = before


@inner
def enqueue(fleet: Fleet, e: int, r: int) -> None:
    """Put a request at the end of the queue."""
    append(fleet, e, r, WAIT_HEAD, WAIT_TAIL)


@inner
def enqueue_first(fleet: Fleet, e: int, r: int) -> None:
    """Put a request at the front of the queue."""
    engines, requests = fleet.engines, fleet.requests
    first = engines[e, WAIT_HEAD]
    requests[r, BEFORE] = NOBODY
    requests[r, NEXT] = first
    if first == NOBODY:
        engines[e, WAIT_TAIL] = r
    else:
        requests[first, BEFORE] = r
    engines[e, WAIT_HEAD] = r


@inner
def dequeue(fleet: Fleet, e: int) -> int:
    """Take the first request out of the queue."""
    r = fleet.engines[e, WAIT_HEAD]
    unlink(fleet, e, r, WAIT_HEAD, WAIT_TAIL)
    return r  # type: ignore[no-any-return]


@inner
def append_prefill(fleet: Fleet, e: int, r: int) -> None:
    """Admit a request to prefill."""
    append(fleet, e, r, PREFILL_HEAD, PREFILL_TAIL)


@inner
def append_decode(fleet: Fleet, e: int, r: int) -> None:
    """Let a request decode, as the newest."""
    append(fleet, e, r, DECODE_HEAD, DECODE_TAIL)


@inner
def push_finish(fleet: Fleet, e: int, key: int, r: int) -> None:
    """Note when a sequence ends."""
    heap, engines = fleet.heap, fleet.engines
    i = engines[e, FINISHING]
    engines[e, FINISHING] = i + 1
    while i > 0:
        parent = (i - 1) // 2
        if heap[e, parent, 0] <= key:
            break
        heap[e, i, 0] = heap[e, parent, 0]
        heap[e, i, 1] = heap[e, parent, 1]
        i = parent
    heap[e, i, 0] = key
    heap[e, i, 1] = r


@inner
def sink(fleet: Fleet, e: int, i: int, key: int, r: int) -> None:
    """Put an entry at position i of the heap or below."""
    heap, size = fleet.heap, fleet.engines[e, FINISHING]
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        if child + 1 < size and heap[e, child + 1, 0] < heap[e, child, 0]:
            child += 1
        if heap[e, child, 0] >= key:
            break
        heap[e, i, 0] = heap[e, child, 0]
        heap[e, i, 1] = heap[e, child, 1]
        i = child
    heap[e, i, 0] = key
    heap[e, i, 1] = r


@inner
def pop_finish(fleet: Fleet, e: int) -> int:
    """The sequence that ends first, taken out."""
    heap, engines = fleet.heap, fleet.engines
    r = heap[e, 0, 1]
    size = engines[e, FINISHING] - 1
    engines[e, FINISHING] = size
    if size:
        sink(fleet, e, 0, heap[e, size, 0], heap[e, size, 1])
    return r  # type: ignore[no-any-return]


@inner
def drop_finish(fleet: Fleet, e: int, r: int) -> None:
    """Take out a sequence wherever it is: one of the batch, so few steps."""
    heap, engines = fleet.heap, fleet.engines
    size = engines[e, FINISHING]
    i = 0
    while heap[e, i, 1] != r:
        i += 1
    size -= 1
    engines[e, FINISHING] = size
    if i == size:
        return
    key, moved = heap[e, size, 0], heap[e, size, 1]
    # Up, if the last entry is smaller than what is above the gap; else down.
    while i > 0 and heap[e, (i - 1) // 2, 0] > key:
        heap[e, i, 0] = heap[e, (i - 1) // 2, 0]
        heap[e, i, 1] = heap[e, (i - 1) // 2, 1]
        i = (i - 1) // 2
    sink(fleet, e, i, key, moved)


@inner
def hold(fleet: Fleet, e: int, r: int) -> None:
    """Keep a finished sequence's blocks, sorted by when that ends."""
    engines, requests = fleet.engines, fleet.requests
    until = requests[r, HELD_UNTIL]
    before, after = NOBODY, engines[e, HOLD_HEAD]
    while after != NOBODY and requests[after, HELD_UNTIL] <= until:
        before, after = after, requests[after, NEXT]
    requests[r, NEXT] = after
    if before == NOBODY:
        engines[e, HOLD_HEAD] = r
    else:
        requests[before, NEXT] = r
