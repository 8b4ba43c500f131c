"""Beliefs about what regions cache."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope_epp.region import prefixes
from heliotrope_epp.region.prefixes import BELIEVED_S, BLOCK_BYTES, RegionPrefixes

NAMES = ("a", "b")


def shares(index: RegionPrefixes, prompt: bytes, *, salt: str = "", now_s: float = 0.0) -> list[float]:
    return list(index.cached_shares(index.chain("m", salt, prompt), len(prompt), NAMES, now_s))


def sent(index: RegionPrefixes, prompt: bytes, region: str, *, salt: str = "", now_s: float = 0.0) -> None:
    index.sent(index.chain("m", salt, prompt), region, now_s)


@given(common=st.integers(0, 5), own=st.integers(0, 5), rest=st.integers(0, BLOCK_BYTES - 1))
def test_the_beginning_that_prompts_share_is_cached_where_it_was_sent(common: int, own: int, rest: int) -> None:
    index = RegionPrefixes()
    beginning = b"".join(bytes([i]) * BLOCK_BYTES for i in range(common))
    first = beginning + b"x" * (BLOCK_BYTES * own)
    second = beginning + b"y" * (BLOCK_BYTES * own + rest)
    sent(index, first, "a")
    got = shares(index, second)
    assert got[1] == 0.0
    assert got[0] == (common * BLOCK_BYTES / len(second) if second and common else 0.0)
    assert 0.0 <= got[0] <= 1.0


def test_beliefs_end_with_time_with_the_region_and_with_another_salt() -> None:
    index, prompt = RegionPrefixes(), b"p" * (4 * BLOCK_BYTES + 1)
    sent(index, prompt, "a", now_s=100.0)
    assert shares(index, prompt, now_s=100.0 + BELIEVED_S)[0] == pytest.approx(1.0, abs=0.001)
    assert shares(index, prompt, now_s=101.0 + BELIEVED_S) == [0.0, 0.0]
    assert shares(index, prompt, salt="another tenant", now_s=100.0) == [0.0, 0.0]
    index.forget("a")
    assert shares(index, prompt, now_s=100.0) == [0.0, 0.0]


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefixes, "BLOCKS_PER_REGION", 32)
    index = RegionPrefixes()
    for i in range(100):
        sent(index, bytes([i]) * (2 * BLOCK_BYTES), "a")
    assert index.blocks <= 32
    assert shares(index, bytes([99]) * (2 * BLOCK_BYTES))[0] == 1.0
