from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope.cache.links import DEFAULT_LINKS, LinkClass, Place
from heliotrope_sim.emulator.transfer import params
from heliotrope_sim.emulator.transfer.config import KvTransferConfig
from heliotrope_sim.emulator.transfer.params import KvTransfer, Peer, RemotePrefill

PEER = Peer("10.0.0.1", 8000)
HELD = params.held(
    engine_id="e", request_id="chatcmpl-1", peer=PEER, tensor_parallel=4, block_ids=range(1, 4), tokens=40
)


def test_what_a_prefiller_says_a_decoder_reads() -> None:
    # The fields of vLLM 0.32's NixlConnector.
    assert HELD == {
        "do_remote_prefill": True,
        "do_remote_decode": False,
        "remote_block_ids": [[1, 2, 3]],
        "remote_engine_id": "e",
        "remote_request_id": "chatcmpl-1",
        "remote_host": "10.0.0.1",
        "remote_port": 8000,
        "tp_size": 4,
        "remote_num_tokens": 40,
        "transfer_mode": "pull",
    }
    assert params.read_kv(HELD) == KvTransfer(remote_prefill=RemotePrefill(PEER, "e", "chatcmpl-1", 40))


@pytest.mark.parametrize(
    "wrong",
    [
        {"remote_block_ids": []},
        {"remote_block_ids": None},
        {"remote_engine_id": None},
        {"remote_request_id": ""},
        {"remote_host": "a/b"},
        {"remote_host": "user@host"},
        {"remote_host": ["x"]},
        {"remote_port": 0},
        {"remote_port": 65_536},
        {"remote_port": "8000"},
        {"remote_port": True},
    ],
)
def test_what_names_no_blocks_cannot_be_tried(wrong: dict[str, Any]) -> None:
    read = params.read_kv(HELD | wrong)
    assert read.remote_prefill is None
    assert read.unusable is not None


@pytest.mark.parametrize("tokens", [None, 0, -3, "40", True])
def test_an_unknown_number_of_tokens_is_unknown(tokens: Any) -> None:
    read = params.read_kv(HELD | {"remote_num_tokens": tokens})
    assert read.remote_prefill is not None
    assert read.remote_prefill.tokens is None


def test_other_wishes() -> None:
    assert params.read_kv(None) == params.read_kv({}) == params.read_kv({"do_remote_decode": 1}) == KvTransfer()
    assert params.read_kv({"do_remote_decode": True}).remote_decode
    source = {"remote_kv_source": {"kv_request_id": "k", "remote_host": "::1", "remote_port": 7777}}
    assert params.read_kv(source).kv_source == Peer("::1", 7777)
    assert Peer("::1", 7777).url == "http://[::1]:7777"
    assert PEER.url == "http://10.0.0.1:8000"


@given(
    st.dictionaries(
        st.sampled_from([*HELD, "remote_kv_source"]),
        st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.integers()),
    )
)
def test_nothing_that_a_client_sends_breaks_anything(sent: dict[str, Any]) -> None:
    params.read_kv(sent)
    params.read_ec(sent)


def test_embeddings_are_where_an_encoder_says() -> None:
    said = params.encoded(PEER, {"a": 100, "b": 200})
    assert said["b"] == {"peer_host": "10.0.0.1", "peer_port": 8000, "size_bytes": 200}
    assert params.read_ec(said | {"c": None, "d": {"peer_host": "x"}}) == {"a": PEER, "b": PEER}
    assert params.read_ec(None) == {}


def test_the_link_follows_from_where_both_engines_are() -> None:
    own = {"bytes_per_second": 1e9, "latency_seconds": 0.5, "network_joules_per_bit": 0}
    own |= {"sender_joules_per_bit": 0, "receiver_joules_per_bit": 0}
    config = KvTransferConfig.model_validate({"links": {"wan": own}})
    here = Place("n1", "r1", "ES")
    assert config.link_between(here, Place("n1", None, None)) == (LinkClass.NODE, DEFAULT_LINKS[LinkClass.NODE])
    assert config.link_between(here, Place("n2", "r1", "ES"))[0] is LinkClass.RACK
    assert config.link_between(here, Place("n2", "r2", "NO"))[1].latency_seconds == 0.5
    assert config.link_between(here, Place())[0] is LinkClass.REGION


@pytest.mark.parametrize(
    "wrong",
    [
        {"kv_role": "kv_producer", "kv_recompute_threshold": 3},
        {"kv_lease_duration": 0},
        {"links": {"moon": {}}},
        {"links": {"wan": {"bytes_per_second": 0}}},
        {"kv_load_failure_policy": "hope"},
    ],
)
def test_a_configuration_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        KvTransferConfig.model_validate(wrong)
