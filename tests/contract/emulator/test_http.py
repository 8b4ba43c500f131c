"""Bytes on the wire: vLLM's chunks, vLLM's errors, and no input that breaks the server."""

import asyncio
import json
import re

import httpx
import pytest

from heliotrope_sim.emulator import ServedEngine

MODEL = "meta-llama/Llama-3.1-70B-Instruct"
CHAT = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2, "ignore_eos": True, "stream": True}


async def test_chat_chunks_have_vllms_shape(http: httpx.AsyncClient) -> None:
    response = await http.post(
        "/v1/chat/completions",
        json=CHAT | {"stream_options": {"include_usage": True}},
        headers={"x-request-id": 'fixed"@\\u0000'},
    )
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["x-inference-pod"] == "a"
    events = response.text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    bodies = [json.loads(event.removeprefix("data: ")) for event in events[:-2]]
    created = bodies[0]["created"]
    head = {
        "id": 'chatcmpl-fixed"@\\u0000',
        "object": "chat.completion.chunk",
        "created": created,
        "model": MODEL,
    }
    words = [b["choices"][0]["delta"]["content"] for b in bodies[1:3]]
    assert all(re.fullmatch("[a-z]{3} ", word) for word in words)
    role = {"role": "assistant", "content": ""}
    assert bodies == [
        head
        | {
            "choices": [{"index": 0, "delta": role, "logprobs": None, "finish_reason": None}],
            "prompt_token_ids": None,
            "prompt_text": None,
        },
        head
        | {
            "choices": [
                {
                    "index": 0,
                    "delta": {"content": words[0]},
                    "logprobs": None,
                    "finish_reason": None,
                    "token_ids": None,
                }
            ]
        },
        head
        | {
            "choices": [
                {
                    "index": 0,
                    "delta": {"content": words[1]},
                    "logprobs": None,
                    "finish_reason": "length",
                    "stop_reason": None,
                    "token_ids": None,
                }
            ]
        },
        head
        | {
            "choices": [],
            "usage": {
                "prompt_tokens": 4,
                "total_tokens": 6,
                "completion_tokens": 2,
                "prompt_tokens_details": {"cached_tokens": 0},
            },
            "system_fingerprint": bodies[-1]["system_fingerprint"],
        },
    ]


async def test_completion_chunks_have_vllms_shape(http: httpx.AsyncClient) -> None:
    response = await http.post("/v1/completions", json={"prompt": "hi", "max_tokens": 1, "stream": True})
    event, done, end = response.text.split("\n\n")
    assert (done, end) == ("data: [DONE]", "")
    body = json.loads(event.removeprefix("data: "))
    assert set(body) == {"id", "object", "created", "model", "choices", "system_fingerprint"}
    assert body["choices"][0].keys() == {
        "index",
        "text",
        "logprobs",
        "finish_reason",
        "stop_reason",
        "prompt_token_ids",
        "token_ids",
    }


async def test_a_connection_serves_many_requests(engine: ServedEngine) -> None:
    reader, writer = await asyncio.open_connection(engine.host, engine.port)
    body = json.dumps(CHAT).encode()
    request = (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    for _ in range(3):
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        assert b"transfer-encoding: chunked" in head.lower()
        chunks = []
        while size := int((await reader.readline()).strip(), 16):
            chunks.append(await reader.readexactly(size))
            assert await reader.readexactly(2) == b"\r\n"
        assert await reader.readexactly(2) == b"\r\n"
        assert chunks[-1] == b"data: [DONE]\n\n"
    writer.close()
    await writer.wait_closed()


async def test_a_stream_over_http_1_0_is_refused(engine: ServedEngine) -> None:
    reader, writer = await asyncio.open_connection(engine.host, engine.port)
    body = json.dumps(CHAT).encode()
    writer.write(
        b"POST /v1/chat/completions HTTP/1.0\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    answer = await reader.read()
    assert b" 505 " in answer.split(b"\r\n")[0]
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize(
    ("content", "content_type", "says"),
    [
        (b"{", "application/json", "json_invalid"),
        (b"", "application/json", "json_invalid"),
        (b"[]", "application/json", "body"),
        (b'{"messages": [{"role": "user", "content": "\xff"}]}', "application/json", "json_invalid"),
        (b'{"messages": 5}', "application/json", "body.messages"),
        (b"{}", "text/plain", "Unsupported Media Type"),
    ],
)
async def test_garbage_is_a_400_of_vllms_shape(
    http: httpx.AsyncClient, content: bytes, content_type: str, says: str
) -> None:
    response = await http.post("/v1/chat/completions", content=content, headers={"content-type": content_type})
    assert response.status_code == 400
    error = response.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert (error["type"], error["code"]) == ("Bad Request", 400)
    assert says in error["message"]


async def test_an_error_does_not_repeat_the_prompt(http: httpx.AsyncClient) -> None:
    response = await http.post("/v1/chat/completions", json={"messages": [{"role": 7, "content": "my secret"}]})
    assert response.status_code == 400
    assert "secret" not in response.text


async def test_more_output_than_the_context_holds_is_refused_as_vllm_does(http: httpx.AsyncClient) -> None:
    body = {"messages": [{"role": "user", "content": "hello"}], "ignore_eos": True}
    response = await http.post("/v1/chat/completions", json=body | {"max_tokens": 4097})
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith("max_tokens=4097 cannot be greater than max_model_len=4096.")
    # What the prompt leaves no room for is cut off instead.
    usage = (await http.post("/v1/chat/completions", json=body | {"max_tokens": 4096})).json()["usage"]
    assert usage["total_tokens"] == 4096


async def test_ten_megabytes_are_refused_for_their_length_and_a_hundred_unread(http: httpx.AsyncClient) -> None:
    big = {"messages": [{"role": "user", "content": "x" * 10_000_000}]}
    response = await http.post("/v1/chat/completions", json=big)
    assert response.status_code == 400
    assert "maximum context length" in response.json()["error"]["message"]
    response = await http.post("/v1/chat/completions", content=b" " * 100_000_000)
    assert response.status_code in (400, 413)


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nope", 404), ("GET", "/v1/chat/completions", 405)])
async def test_unknown_routes_have_json_errors(http: httpx.AsyncClient, method: str, path: str, status: int) -> None:
    response = await http.request(method, path)
    assert response.status_code == status
    assert response.json()["error"]["code"] == status


async def test_the_small_routes(http: httpx.AsyncClient) -> None:
    assert (await http.get("/health")).status_code == 200
    assert (await http.get("/ping")).status_code == 200
    assert (await http.get("/version")).json()["version"].startswith("0.32.0")
    tokens = (await http.post("/tokenize", json={"prompt": "abcdefghi"})).json()
    assert (tokens["count"], tokens["max_model_len"]) == (3, 4096)
    assert tokens["tokens"][0] == int.from_bytes(b"abcd", "little")
    chat = (await http.post("/tokenize", json={"messages": CHAT["messages"]})).json()
    assert chat["count"] == 4
    assert (await http.post("/tokenize", json={})).status_code == 400
    assert (await http.post("/tokenize", json={"model": "gpt-5", "prompt": "a"})).status_code == 404
