import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope_sim.sidecar import bodies
from heliotrope_sim.sidecar.usage import MAX_LINE_BYTES, CachedTokens

CHAT: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": "be brief"},
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": "data:a"}},
                {"type": "text", "text": "and"},
                {"type": "image_url", "image_url": {"url": "data:b"}},
                {"type": "image_url", "image_url": {"url": "data:a"}},
            ],
        },
    ],
    "stream": True,
    "stream_options": {"include_usage": True},
    "max_completion_tokens": 50,
    "min_tokens": 3,
}


def test_the_prefiller_makes_one_token_and_keeps_its_blocks() -> None:
    asked = bodies.prefill(CHAT)
    assert asked["messages"] == CHAT["messages"]
    assert (asked["max_tokens"], asked["max_completion_tokens"], asked["min_tokens"]) == (1, 1, 1)
    assert asked["stream"] is False
    assert "stream_options" not in asked
    assert asked["kv_transfer_params"] == {
        "do_remote_decode": True,
        "do_remote_prefill": False,
        "remote_engine_id": None,
        "remote_block_ids": None,
        "remote_host": None,
        "remote_port": None,
    }


def test_the_decoder_gets_the_clients_request_and_what_the_prefiller_said() -> None:
    assert bodies.decode(CHAT, {"kv_transfer_params": {"remote_port": 1}}) == CHAT | {
        "kv_transfer_params": {"remote_port": 1}
    }
    assert bodies.decode(CHAT, {})["kv_transfer_params"] is None


def test_a_cached_prefix_is_pulled_by_whoever_prefills() -> None:
    source = bodies.kv_source("10.0.0.9:8000", None)
    assert (source["remote_host"], source["remote_port"]) == ("10.0.0.9", 8000)
    assert bodies.kv_source("10.0.0.9:8000", 7777)["remote_port"] == 7777
    assert bodies.prefill(CHAT, source)["kv_transfer_params"]["remote_kv_source"] == source
    assert bodies.with_kv_source(CHAT, source)["kv_transfer_params"] == {"remote_kv_source": source}


def test_what_a_client_says_about_transfers_is_dropped() -> None:
    assert bodies.cleaned(CHAT | {"kv_transfer_params": {"remote_host": "x"}, "ec_transfer_params": {}}) == CHAT


def test_every_image_goes_to_an_encoder_once_and_alone() -> None:
    parts = bodies.multimodal_parts(CHAT)
    assert [p["image_url"]["url"] for p in parts] == ["data:a", "data:b"]
    asked = bodies.encode(CHAT, parts[1])
    assert asked["messages"] == [{"role": "user", "content": [parts[1]]}]
    assert (asked["max_tokens"], asked["max_completion_tokens"], asked["stream"]) == (1, 1, False)
    assert not {"stream_options", "min_tokens"} & asked.keys()


@pytest.mark.parametrize("messages", [None, 3, [3], [{"content": "text"}], [{"content": [3, {"type": "image_url"}]}]])
def test_a_body_of_another_shape_holds_no_images_that_break_anything(messages: Any) -> None:
    assert len(bodies.multimodal_parts({"messages": messages})) <= 1


@pytest.mark.parametrize(
    ("answer", "cached"),
    [
        ({}, 0),
        ({"usage": None}, 0),
        ({"usage": {"prompt_tokens_details": None}}, 0),
        ({"usage": {"prompt_tokens_details": {"cached_tokens": 7}}}, 7),
        ({"usage": {"prompt_tokens_details": {"cached_tokens": "7"}}}, 0),
    ],
)
def test_cached_tokens_of_a_prefiller(answer: dict[str, Any], cached: int) -> None:
    assert bodies.cached_tokens(answer) == cached


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"3", b"[" * 100_000, b"\xff"])
def test_what_is_no_json_object_is_none(raw: bytes) -> None:
    assert bodies.parsed(raw) is None


def event(usage: Any) -> bytes:
    return b"data: " + json.dumps({"id": "a", "usage": usage}, separators=(",", ":")).encode() + b"\n\n"


@given(st.lists(st.integers(1, 40)))
def test_a_streams_usage_is_rewritten_however_it_is_cut(cuts: list[int]) -> None:
    usage = {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 9}}
    stream = event(None) + b": ping\n\n" + event(usage) + b"data: [DONE]\n\n"
    rewriter = CachedTokens(4, stream=True)
    sent = b""
    for cut in cuts:
        sent += rewriter.feed(stream[:cut])
        stream = stream[cut:]
    sent += rewriter.feed(stream) + rewriter.finish()
    usage["prompt_tokens_details"] = {"cached_tokens": 4}
    assert sent == event(None) + b": ping\n\n" + event(usage) + b"data: [DONE]\n\n"


def test_a_whole_answers_usage_is_rewritten_at_its_end() -> None:
    rewriter = CachedTokens(4, stream=False)
    assert rewriter.feed(b'{"usage":{"prompt_to') == b""
    assert rewriter.feed(b'kens":9}}') == b""
    assert json.loads(rewriter.finish())["usage"]["prompt_tokens_details"] == {"cached_tokens": 4}
    broken = CachedTokens(4, stream=False)
    broken.feed(b'{"usage":')
    assert broken.finish() == b'{"usage":'


def test_a_line_without_an_end_is_not_held_for_ever() -> None:
    rewriter = CachedTokens(4, stream=True)
    assert len(rewriter.feed(b"x" * (MAX_LINE_BYTES + 1))) == MAX_LINE_BYTES + 1
