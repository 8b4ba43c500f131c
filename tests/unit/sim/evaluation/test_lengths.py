"""Lengths of requests, from the recordings that ship."""

from itertools import islice

import numpy as np
import pytest

from heliotrope_sim.evaluation.lengths import (
    MIX,
    PREFIX_SHARE,
    PREFIX_TOKENS,
    Lengths,
    draw,
    engine_request,
    halves,
    load_lengths,
    shuffled,
)


def test_every_application_has_recorded_lengths() -> None:
    lengths = load_lengths()
    assert set(lengths) == set(MIX)
    assert {name: len(rows) for name, rows in lengths.items()} == {"conversation": 5985, "code": 968, "summary": 1010}
    assert all((rows >= 1).all() for rows in lengths.values())


def test_what_is_held_out_is_not_trained_on() -> None:
    numbered = {"code": np.arange(20).reshape(10, 2)}
    seen, unseen = halves(numbered)
    assert sorted([*seen["code"][:, 0], *unseen["code"][:, 0]]) == list(range(0, 20, 2))


def test_a_stream_follows_the_mix_and_shares_system_prompts() -> None:
    requests = list(islice(draw(load_lengths(), np.random.default_rng(1)), 4_000))
    for name, share in MIX.items():
        assert sum(r.application == name for r in requests) / 4_000 == pytest.approx(share, abs=0.03)
    shared = [r for r in requests if r.prefix_group >= 0]
    assert len(shared) / 4_000 == pytest.approx(PREFIX_SHARE, abs=0.03)
    assert all(r.prefix_tokens < r.prompt_tokens and r.prefix_tokens <= PREFIX_TOKENS[1] for r in shared)
    assert all(r.prefix_tokens == 0 for r in requests if r.prefix_group < 0)


def test_equal_seeds_draw_equal_requests() -> None:
    first, second = (list(islice(draw(load_lengths(), np.random.default_rng(3)), 50)) for _ in range(2))
    assert first == second


def test_blocks_are_shared_within_a_group_only() -> None:
    one, same, other = (
        engine_request("r", Lengths("code", 100, 5, prefix_group=group, prefix_tokens=tokens), 16)
        for group, tokens in ((1, 40), (1, 70), (2, 40))
    )
    assert list(one.block_hashes) == list(same.block_hashes)[:2]
    assert len(same.block_hashes) == 4
    assert not set(one.block_hashes) & set(other.block_hashes)


def test_every_recording_comes_once() -> None:
    requests = shuffled({"code": np.array([[1, 2], [3, 4]])}, np.random.default_rng(0))
    assert sorted((r.prompt_tokens, r.output_tokens) for r in requests) == [(1, 2), (3, 4)]
