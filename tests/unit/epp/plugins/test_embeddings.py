"""Who is believed to remember which images."""

from hypothesis import given
from hypothesis import strategies as st

from heliotrope.media.attachment import Attachment, Modality
from heliotrope_epp.plugins.embeddings import MAX_HOLDERS, EmbeddingIndex


def image(key: str) -> Attachment:
    return Attachment(Modality.IMAGE, key, 100)


def test_holders_are_those_that_saw_an_image() -> None:
    index = EmbeddingIndex()
    index.remember("one", ["a", "b"])
    index.remember("two", ["b"])
    assert index.held([image("one"), image("two"), image("three")]) == {
        "a": frozenset({"one"}),
        "b": frozenset({"one", "two"}),
    }
    index.forget("b")
    assert index.held([image("one"), image("two")]) == {"a": frozenset({"one"})}
    assert len(index) == 1


def test_the_least_recently_used_goes_first() -> None:
    index = EmbeddingIndex(2)
    for key in ("one", "two", "one", "three"):
        index.remember(key, ["a"])
    assert index.held([image(key) for key in ("one", "two", "three")]) == {"a": frozenset({"one", "three"})}
    assert index.evictions == 1
    index.resize(1)
    assert (len(index), index.evictions) == (1, 2)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 200)), max_size=300))
def test_it_never_grows_beyond_its_bounds(seen: list[tuple[int, int]]) -> None:
    index = EmbeddingIndex(5)
    for key, endpoint in seen:
        index.remember(str(key), [str(endpoint)])
        assert str(key) in index.held([image(str(key))])[str(endpoint)]
    assert len(index) <= 5
    assert len(index.held([image(str(key)) for key in range(21)])) <= 5 * MAX_HOLDERS
    assert index.evictions >= len({key for key, _ in seen}) - 5
