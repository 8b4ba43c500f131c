import json
from collections.abc import AsyncIterator

import pytest

from heliotrope_sim.demo.answer import Answer


async def read(stream: bytes) -> Answer:
    async def lines() -> AsyncIterator[bytes]:
        for line in stream.splitlines(keepends=True):
            yield line

    answer = Answer(keep_text=True)
    ticks = iter(range(100))
    await answer.read_stream(lines(), lambda: float(next(ticks)))
    return answer


def event(text: str) -> bytes:
    return f"data: {text}\n\n".encode()


async def test_a_stream_is_timed_from_content_to_content_and_counted_by_usage() -> None:
    answer = await read(
        event('{"choices":[{"delta":{"role":"assistant","content":""}}]}')
        + b"".join(event('{"choices":[{"delta":{"content":"a"}}]}') for _ in range(5))
        + event(
            '{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":5,'
            '"prompt_tokens_details":{"cached_tokens":2}}}'
        )
        + event("[DONE]")
    )
    assert (answer.tokens, answer.problem, answer.text) == (5, "", "aaaaa")
    assert (answer.prompt_tokens, answer.cached_tokens) == (3, 2)
    assert answer.tpot_seconds() == pytest.approx(4 / 4)  # first content at one tick, last four ticks later


async def test_a_stream_that_breaks_off_is_a_failure() -> None:
    answer = await read(event('{"choices":[{"delta":{"content":"a"}}]}'))
    assert answer.problem == "stream ended without [DONE]"


def test_an_answer_in_one_piece_is_read_and_its_text_kept_where_it_is_needed() -> None:
    document = {
        "id": "r-1",
        "choices": [{"message": {"content": "the sun"}}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": None},
    }
    kept, plain, refused = Answer(keep_text=True), Answer(), Answer()
    for answer in (kept, plain):
        answer.read_whole(json.dumps(document).encode(), 200)
        assert (answer.tokens, answer.prompt_tokens, answer.cached_tokens, answer.response_id) == (2, 7, 0, "r-1")
        assert answer.tpot_seconds() is None
    assert (kept.text, plain.text) == ("the sun", "")
    refused.read_whole(b"busy", 503)
    assert refused.problem == "HTTP 503"
