"""KV events as bytes: both formats of vLLM, and what is no event."""

from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope.errors import InvalidInputError
from heliotrope_epp.datalayer.kv_event_wire import MAX_MESSAGE_BYTES, Cleared, Removed, Stored, decoded, events_of

STORED = Stored((11, 12), 10, (1, 2, 3, 4), 2, "GPU", None, (("tenant",), None))


def packed(*events: Any) -> bytes:
    return msgspec.msgpack.encode([1.7e9, list(events), 0])


def test_maps_and_arrays_say_the_same() -> None:
    as_map = {
        "type": "BlockStored",
        "block_hashes": [11, 12],
        "parent_block_hash": 10,
        "token_ids": [1, 2, 3, 4],
        "block_size": 2,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        "extra_keys": [["tenant"], None],
        "group_idx": 0,
    }
    as_array = ["BlockStored", [11, 12], 10, [1, 2, 3, 4], 2, None, "GPU", None, [["tenant"], None], 0]
    removed = {"type": "BlockRemoved", "block_hashes": [12], "medium": "CPU"}
    gone = [Removed((12,), "CPU"), Cleared()]
    found = events_of(packed(as_map, removed, {"type": "AllBlocksCleared"}))
    again = events_of(packed(as_array, ["BlockRemoved", [12], "CPU", 0], ["AllBlocksCleared"]))
    assert found[0].hashes == STORED.hashes  # type: ignore[union-attr]
    assert found == again
    assert found[1:] == gone
    stored = found[0]
    assert isinstance(stored, Stored)
    assert (stored.parent, stored.token_ids, stored.block_size, stored.medium) == (10, (1, 2, 3, 4), 2, "GPU")
    assert list(stored.extra_keys[0]) == ["tenant"]  # type: ignore[call-overload]


def test_absent_trailing_fields_and_digests_as_names() -> None:
    stored, removed = events_of(packed(["BlockStored", [b"\x01\x00"], None, [5], 1], ["BlockRemoved", [b"\x01\x00"]]))
    assert stored == Stored((256,), None, (5,), 1, None, None, ())
    assert removed == Removed((256,), None)


def test_events_of_other_types_are_left_out() -> None:
    assert events_of(packed({"type": "SomethingNew"}, ["Other", 1], {"type": "AllBlocksCleared"})) == [Cleared()]


def test_frames() -> None:
    assert decoded((b"kv@a@m", (7).to_bytes(8, "big"), packed())) == (7, [])
    for frames in ((), (b"t", b"1234567"), (b"t", b"1234567", packed()), (b"t", b"12345678", packed(), b"")):
        with pytest.raises(InvalidInputError, match="frames"):
            decoded(frames)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        b"text",
        msgspec.msgpack.encode(7),
        msgspec.msgpack.encode([1.0]),
        msgspec.msgpack.encode([1.0, "events"]),
        packed(7),
        packed([]),
        packed({"type": "BlockRemoved"}),
        packed({"type": "BlockRemoved", "block_hashes": ["x"]}),
        packed({"type": "BlockRemoved", "block_hashes": [True]}),
        packed(["BlockStored", [1], None, [1, 2, 3], 2]),
        packed(["BlockStored", [1], None, [1, -2], 2]),
        packed(["BlockStored", [1], None, ["a", "b"], 2]),
        packed(["BlockStored", [1], None, [1, 2], "2"]),
        packed(["BlockStored", [1], "x", [1, 2], 2]),
        b"\x91" * 100_000,
    ],
)
def test_what_is_no_batch_is_refused(payload: bytes) -> None:
    with pytest.raises(InvalidInputError):
        events_of(payload)


def test_the_size_is_bounded() -> None:
    with pytest.raises(InvalidInputError, match="16 MiB"):
        events_of(b"\x00" * (MAX_MESSAGE_BYTES + 1))


junk = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
names = st.sampled_from(["BlockStored", "BlockRemoved", "AllBlocksCleared"])
event = st.tuples(names, junk, junk, junk, junk).map(list) | st.fixed_dictionaries(
    {"type": names}, optional={"block_hashes": junk, "token_ids": junk, "block_size": junk, "medium": junk}
)


@given(st.binary(max_size=60) | st.lists(event | junk, max_size=4).map(lambda events: packed(*events)))
def test_nothing_else_than_an_input_error_comes_of_junk(payload: bytes) -> None:
    with suppress(InvalidInputError):
        events_of(payload)
