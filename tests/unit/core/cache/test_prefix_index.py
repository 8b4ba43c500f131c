"""The index of what engines tell, against plain sets of contents."""

from hypothesis import given, settings
from hypothesis import strategies as st

from heliotrope.cache.links import Tier
from heliotrope.cache.prefix_index import BYTES_PER_BLOCK, EngineIndex

TIERS = list(Tier)


def test_blocks_are_found_by_content_and_removed_by_the_engines_names() -> None:
    index = EngineIndex()
    index.stored("e", [91, 92, 93], [1, 2, 3], Tier.ACCELERATOR)
    assert index.leading_runs([1, 2, 3, 4], ["e", "f"]) == ([3, 0], [3, 0])
    assert index.leading_runs([2, 3], ["e"])[0] == [2]
    assert index.leading_runs([], ["e"]) == ([0], [0])
    assert index.content_of("e", 92) == 2
    assert index.content_of("f", 92) is None
    index.removed("e", [93, 7], Tier.ACCELERATOR)
    assert index.leading_runs([1, 2, 3], ["e"])[0] == [2]
    index.cleared("e")
    index.cleared("e")
    assert index.stats().blocks == {}


def test_a_block_stays_known_while_some_tier_holds_it() -> None:
    index = EngineIndex()
    index.stored("e", [91, 92], [1, 2], Tier.ACCELERATOR)
    index.moved("e", [91, 92, 99], Tier.CPU)
    assert index.stats().orphans_total == 1
    index.removed("e", [91, 92], Tier.ACCELERATOR)
    assert index.leading_runs([1, 2], ["e"]) == ([0], [2])
    index.removed("e", [92], Tier.CPU)
    assert index.leading_runs([1, 2], ["e"]) == ([0], [1])
    index.moved("nobody", [1], Tier.DISK)
    assert index.stats().orphans_total == 2


def test_memory_is_bounded_and_the_largest_endpoint_gives() -> None:
    index = EngineIndex(max_bytes=100 * BYTES_PER_BLOCK)
    index.stored("small", [1, 2, 3], [1, 2, 3], Tier.ACCELERATOR)
    for i in range(500):
        index.stored("large", [1_000 + i], [1_000 + i], Tier.ACCELERATOR)
    stats = index.stats()
    assert sum(stats.blocks.values()) <= 100
    assert stats.blocks["small"] == 3
    assert stats.dropped_total == 503 - sum(stats.blocks.values())
    assert index.leading_runs([1_499], ["large"])[0] == [1]
    assert index.leading_runs([1_000], ["large"])[0] == [0]


prompts = st.lists(st.integers(0, 2), min_size=1, max_size=6)
steps = st.lists(
    st.tuples(
        st.sampled_from("ab"),
        st.sampled_from(["store", "move", "remove", "clear"]),
        prompts,
        st.sampled_from(TIERS),
    ),
    max_size=40,
)


@settings(deadline=None)
@given(steps, prompts)
def test_it_answers_as_sets_of_prefixes_do(script: list[tuple[str, str, list[int], Tier]], probe: list[int]) -> None:
    index = EngineIndex()
    held: dict[str, dict[tuple[int, ...], set[Tier]]] = {}

    def names(prompt: list[int]) -> list[tuple[int, ...]]:
        return [tuple(prompt[: i + 1]) for i in range(len(prompt))]

    for endpoint, what, prompt, tier in script:
        chain = names(prompt)
        hashes = [hash(("engine", name)) for name in chain]
        contents = [hash(("content", name)) for name in chain]
        known = held.setdefault(endpoint, {})
        if what == "clear":
            known.clear()
            index.cleared(endpoint)
        elif what == "store":
            index.stored(endpoint, hashes, contents, tier)
            for name in chain:
                known.setdefault(name, set()).add(tier)
        elif what == "move":
            index.moved(endpoint, hashes, tier)
            for name in chain:
                if name in known:
                    known[name].add(tier)
        else:  # engines drop ends first: remove what continues the whole prompt, in every tier, then its last block
            gone = [name for name in known if name[: len(prompt)] == tuple(prompt)]
            for each in TIERS:
                index.removed(endpoint, [hash(("engine", name)) for name in gone], each)
            for name in gone:
                del known[name]
        assert index.stats().blocks.get(endpoint, 0) == len(known)
    chain = names(probe)
    contents = [hash(("content", name)) for name in chain]

    def run(endpoint: str) -> int:
        known = held.get(endpoint, {})
        return next((i for i, name in enumerate(chain) if name not in known), len(chain))

    # In any tier prefixes are whole, as ends go first; in one tier alone they need not be.
    assert index.leading_runs(contents, "abc")[1] == [run(endpoint) for endpoint in "abc"]
