"""What a picker would learn from a real engine: the rows of its decisions, and the latencies that clients then saw.

One picker's bookkeeping of the engine, by the code that serves requests, without the gateway between: it reads the
engine's page of metrics, adds its own dispatches and hears of every piece of an answer. It knows no engine profile.
"""

import asyncio
import json
import math
import random
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import aiohttp
import numpy as np
from tests.vllm.engine import MAX_NUM_SEQS, MODEL, RealEngine
from tests.vllm.tiny_model import VOCABULARY

from heliotrope.decide.candidates import FloatColumn, Hardware
from heliotrope.decide.estimate import estimate
from heliotrope.decide.policy import DecisionPolicy
from heliotrope.decide.rows import describe
from heliotrope.predict.length_distribution import LengthContext
from heliotrope.predict.output_length import OutputLengths
from heliotrope.predict.sample import Refusal, RequestObservation, Sample, request_sample
from heliotrope.predict.trainingset import block_key
from heliotrope_epp.datalayer.endpoint import Endpoint, Traits
from heliotrope_epp.datalayer.inflight import Dispatch
from heliotrope_epp.datalayer.scrape import Scraper, ScrapeSettings
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.director.director import DirectorSettings
from heliotrope_epp.plugins.interface import LlmRequest, Option
from heliotrope_epp.plugins.options import Options
from heliotrope_epp.plugins.pickers.columns import candidates_of, request_profile

CLIENTS = (1, 2, 4, 8, MAX_NUM_SEQS, MAX_NUM_SEQS * 3 // 2)
"""That ask at the same time, one after the other; the last are more than the engine's batch takes."""
PROMPT_TOKENS = (16, 1_500)
OUTPUT_TOKENS = (8, 128)
PAUSE_SECONDS = 0.05
"""Mean time that a client takes between two questions, so that arrivals don't keep step with the engine."""
SCRAPE_SECONDS = 10.0
ANSWER_SECONDS = 300.0

_HARDWARE = Hardware("CPU", 1, MODEL, "both")
_POLICY = DecisionPolicy(name="observed")
_STALE_AFTER_S = DirectorSettings().metrics_stale_after_s
_NO_SCORE = np.zeros(1)


@dataclass(frozen=True, slots=True)
class Question:
    """One request: its prompt as tokens, and how many are to come back."""

    prompt: tuple[int, ...]
    output_tokens: int
    pause_seconds: float


@dataclass(frozen=True, slots=True)
class Observed:
    """One answered request."""

    row: FloatColumn
    """As the decision had it, with the length that was then expected."""
    sample: Sample | Refusal
    """What it teaches, at its true length."""


def questions(rng: random.Random, count: int) -> Iterator[Question]:
    """Prompts that share nothing; lengths are log-uniform."""

    def log_uniform(low: int, high: int) -> int:
        return round(low * math.exp(rng.random() * math.log(high / low)))

    for _ in range(count):
        prompt = tuple(rng.randrange(2, VOCABULARY) for _ in range(log_uniform(*PROMPT_TOKENS)))
        yield Question(prompt, log_uniform(*OUTPUT_TOKENS), rng.expovariate(1.0 / PAUSE_SECONDS))


async def sweep(engine: RealEngine, rng: random.Random, rounds: int, each: int) -> list[Observed]:
    """Every number of clients asks `each` questions per round, in a random order; observations in the order of ends.

    The engine may have just started, so that first as many questions are asked that don't count.
    """
    state = EndpointState(
        Endpoint("vllm-0", "default", "127.0.0.1", engine.port),
        Traits(hardware=_HARDWARE, hardware_row=describe(_HARDWARE, None).row()),
    )
    async with (
        Scraper(ScrapeSettings()) as scraper,
        aiohttp.ClientSession(engine.url, timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS)) as http,
    ):
        scraper.added(state)
        async with asyncio.timeout(SCRAPE_SECONDS):
            while state.metrics is None:
                await asyncio.sleep(0.05)
        picker = _Picker(state, http)
        await picker.ask_all(questions(rng, each), max(CLIENTS))
        picker.observed.clear()
        for _ in range(rounds):
            for clients in rng.sample(CLIENTS, len(CLIENTS)):
                await picker.ask_all(questions(rng, each), clients)
    return picker.observed


class _Picker:
    def __init__(self, state: EndpointState, http: aiohttp.ClientSession) -> None:
        self._state = state
        self._http = http
        self._lengths = OutputLengths()
        self.observed: list[Observed] = []

    async def ask_all(self, asked: Iterator[Question], clients: int) -> None:
        """That many clients, who take turns at the questions."""

        async def client() -> None:
            for question in asked:
                await asyncio.sleep(question.pause_seconds)
                await self._ask(question)

        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(client())

    async def _ask(self, question: Question) -> None:
        began_s, began_unix_s = time.monotonic(), time.time()
        request, context = self._request(question, began_s)
        row = self._row(request, began_s, began_unix_s)
        dispatch = Dispatch(
            began_s,
            request.prompt_tokens,
            request.prompt_tokens,
            began_s,
            request.expected_output_tokens,
            streams=True,
        )
        self._state.inflight.add(dispatch, prefill_seconds=0.0)
        self._lengths.started(MODEL, began_s)
        try:
            pieces_s, tokens = await self._stream(question, dispatch)
        finally:
            self._state.inflight.remove(dispatch)
        ended_s, ended_unix_s = time.monotonic(), time.time()
        self._lengths.ended(MODEL, began_s, ended_s, tokens, context)
        observation = RequestObservation(
            key=block_key(self._state.endpoint.key, len(self.observed)),
            row=row,
            complete=True,
            output_tokens=tokens,
            dispatched_s=began_s,
            ended_s=ended_s,
            dispatched_unix_s=began_unix_s,
            ended_unix_s=ended_unix_s,
            ttft_seconds=pieces_s[0] - began_s,
            tpot_seconds=(pieces_s[-1] - pieces_s[0]) / (tokens - 1),
        )
        self.observed.append(Observed(row, request_sample(observation, ended_unix_s)))

    def _request(self, question: Question, now_s: float) -> tuple[LlmRequest, LengthContext]:
        prompt_tokens = len(question.prompt)
        context = LengthContext(MODEL, "", prompt_tokens, question.output_tokens, streaming=True)
        request = LlmRequest(
            request_id=str(uuid.uuid4()),
            path="/v1/completions",
            model=MODEL,
            prompt=b"",
            prompt_tokens=prompt_tokens,
            max_output_tokens=question.output_tokens,
            expected_output_tokens=self._lengths.predict(context, now_s).mean,
            streaming=True,
        )
        return request, context

    def _row(self, request: LlmRequest, now_s: float, now_unix_s: float) -> FloatColumn:
        option = Option(self._state, self._state.load(now_s, _STALE_AFTER_S), cached_tokens=0.0)
        candidates = candidates_of(Options.of((option,)), _NO_SCORE, {})
        row: FloatColumn = estimate(request_profile(request), candidates, _POLICY, now_unix_s).features[0]
        return row

    async def _stream(self, question: Question, dispatch: Dispatch) -> tuple[list[float], int]:
        """When each piece arrived, and the number of tokens."""
        body = {
            "model": MODEL,
            "prompt": question.prompt,
            "max_tokens": question.output_tokens,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        pieces_s: list[float] = []
        tokens = 0
        async with self._http.post("/v1/completions", json=body, raise_for_status=True) as answer:
            async for line in answer.content:
                content = line.strip().removeprefix(b"data: ")
                if not content or content == b"[DONE]":
                    continue
                piece = json.loads(content)
                if piece["choices"]:
                    pieces_s.append(time.monotonic())
                    self._state.inflight.piece(dispatch, pieces_s[-1])
                else:
                    tokens = piece["usage"]["completion_tokens"]
        return pieces_s, tokens
