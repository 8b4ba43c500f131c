"""The generators: lengths, prefixes, sessions, bursts, images."""

import numpy as np
import pytest

from heliotrope_sim.reproduce.roadmap.workloads import BLOCK_TOKENS, CLASSES, KINDS, arrivals, turns_of


@pytest.mark.parametrize("name", KINDS)
def test_prompts_have_blocks_and_turns_repeat_what_came_before(name: str) -> None:
    firsts = arrivals(KINDS[name], 5.0, 120, 0.5, 1)
    assert [f.at_ns for f in firsts] == sorted(f.at_ns for f in firsts)
    turns = turns_of(firsts)
    assert len({turn.number for turn in turns}) == len(turns)
    for turn in turns:
        assert turn.prompt_tokens > 0
        assert turn.output_tokens > 0
        assert len(turn.hashes) == len(set(turn.hashes)) == (turn.prompt_tokens + turn.output_tokens) // BLOCK_TOKENS
        assert bool(turn.pictures) == (KINDS[name].images > 0)
        assert sum(p.tokens for p in turn.pictures) < turn.prompt_tokens
        if turn.following is not None:
            assert turn.following.hashes[: len(turn.hashes)] == turn.hashes


def shared_first_blocks(name: str, sharing: float) -> int:
    firsts = arrivals(CLASSES[name], 5.0, 200, sharing, 1)
    return len({first.hashes[0] for first in firsts if first.hashes})


def test_sharing_says_how_many_begin_alike_and_leaves_lengths_alone() -> None:
    assert shared_first_blocks("rag", 0.0) == 200
    assert shared_first_blocks("rag", 1.0) <= CLASSES["rag"].prefixes
    lengths = [np.mean([f.prompt_tokens for f in arrivals(CLASSES["rag"], 5.0, 600, s, 1)]) for s in (0.0, 0.9)]
    assert lengths[1] == pytest.approx(lengths[0], rel=0.25)


def test_batches_come_in_bursts_and_sessions_have_the_mean_number_of_turns() -> None:
    jobs = arrivals(CLASSES["batch"], 5.0, 100, 0.5, 1)
    assert len({job.at_ns for job in jobs}) == 5
    agentic = arrivals(CLASSES["agentic"], 5.0, 1_200, 0.5, 1)
    assert len(turns_of(agentic)) / len(agentic) == pytest.approx(6.0, rel=0.2)


def test_the_rate_is_of_turns_and_seeds_are_reproducible() -> None:
    for name in ("chat", "batch", "agentic"):
        firsts = arrivals(CLASSES[name], 10.0, 2_000, 0.5, 2)
        assert len(turns_of(firsts)) / (firsts[-1].at_ns / 1e9) == pytest.approx(10.0, rel=0.25)
        assert arrivals(CLASSES[name], 10.0, 50, 0.5, 2) == arrivals(CLASSES[name], 10.0, 50, 0.5, 2)
        assert arrivals(CLASSES[name], 10.0, 50, 0.5, 2) != arrivals(CLASSES[name], 10.0, 50, 0.5, 3)


def test_repeated_images_have_equal_keys_and_each_is_there_once() -> None:
    def keys(sharing: float) -> list[str]:
        return [p.key for f in arrivals(CLASSES["multimodal"], 5.0, 200, sharing, 1) for p in f.pictures]

    assert len(set(keys(1.0))) <= 16
    assert len(set(keys(0.0))) == len(keys(0.0))
