"""Draws that keep pickers apart: which of several plans that tie a request may go to.

Pickers that look at the same old state and compare to the last digit all send to the same endpoint until the next
scrape. So as soon as only latency and score are left to compare, `choices` of the tied plans are drawn and the best of
them is taken: the power of two choices (Mitzenmacher 2001). With n tied plans the best gets about k / n of what all
pickers send in the meantime, and not everything.

The draw is rendezvous hashing: each endpoint's hash with the request's id and the picker's identity is its place in
line. It needs no state, is the same when it is made again, does not depend on the order of the plans, and a plan that
comes or goes moves only the requests that are its own.
"""

from collections.abc import Sequence
from zlib import crc32

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def seed_of(request_id: str, picker_seed: int) -> int:
    """The seed of a request's draws at one picker."""
    return crc32(request_id.encode(errors="surrogatepass"), picker_seed & 0xFFFFFFFF)


def drawn(names: Sequence[str], seed: int, count: int) -> list[int]:
    """Positions of the first `count` in line, the first in front.

    Args:
        names: of the endpoints; plans of one endpoint are in line behind each other.
        seed: of the request, `seed_of`.
        count: how many to draw; all, in their line, if it is as many or more.
    """
    line = sorted(range(len(names)), key=lambda i: _place(names[i], seed))
    return line[:count]


def _place(name: str, seed: int) -> int:
    # A checksum alone is linear: the order of two names would not depend on the seed. One multiplication mixes it.
    mixed = ((crc32(name.encode(errors="surrogatepass")) ^ (seed << 32) ^ seed) * _GOLDEN) & _MASK
    mixed ^= mixed >> 29
    return (mixed * _GOLDEN) & _MASK
