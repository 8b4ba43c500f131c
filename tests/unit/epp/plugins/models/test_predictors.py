"""Predictors behind one protocol: the table, a trained file, and an external scorer that may be slow, wrong or dead."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from aiohttp import web

from heliotrope.decide.policy import DecisionPolicy
from heliotrope.decide.quality import Group, Member, ModelRules, Prediction, Predictor
from heliotrope.predict.text_quality import BUCKETS, TextQuality
from heliotrope_epp.clock import Clock
from heliotrope_epp.plugins.interface import LlmRequest
from heliotrope_epp.plugins.models.predictor import CpuMeter, TablePredictor, load_predictor, task_of
from heliotrope_epp.plugins.models.router import ModelRouter
from heliotrope_epp.plugins.models.scorer import MAX_ANSWER_BYTES, MAX_PROMPT_BYTES, HttpScorer, ScorerSettings

GROUP = Group("large", (Member("large", "large", quality=0.9), Member("small", "small", by_task={"code": 0.3})))


def request(prompt: bytes = b"hello", **changes: Any) -> LlmRequest:
    fields: dict[str, Any] = {
        "request_id": "r",
        "path": "/v1/chat/completions",
        "model": "large",
        "prompt": prompt,
        "prompt_tokens": 2,
        "max_output_tokens": None,
        "expected_output_tokens": 10.0,
        "streaming": False,
        **changes,
    }
    return LlmRequest(**fields)


def at_once(predictor: Any, asked: LlmRequest | None = None, task: str = "chat") -> Prediction:
    got: list[Prediction] = []
    predictor.predict(asked or request(), GROUP, task, got.append)
    (prediction,) = got
    return prediction


def known(prediction: Prediction) -> dict[str, float]:
    return {model: value for model, value in prediction.quality.items() if value == value}


def test_the_table_knows_what_the_policy_states() -> None:
    assert known(at_once(TablePredictor())) == {"large": 0.9}
    assert known(at_once(TablePredictor(), task="code")) == {"large": 0.9, "small": 0.3}


def test_a_header_names_the_task_and_counts_do_otherwise() -> None:
    assert task_of(" law ", request()) == "law"
    assert task_of("x" * 999, request()) == "x" * 63
    assert task_of("", request(b"``` ```")) == "code"
    assert task_of(None, request(token_ids=True)) == "tokens"


def trained(path: Path) -> Path:
    model = TextQuality({"small": np.zeros(BUCKETS + 1, dtype=np.float32)}, {"small": 0.7})
    path.write_text(model.to_text())
    return path


def test_a_trained_file_fills_in_what_it_knows(tmp_path: Path) -> None:
    predictor, problem = load_predictor(trained(tmp_path / "q"))
    assert problem is None
    prediction = at_once(predictor)
    assert (known(prediction), prediction.source) == ({"large": 0.9, "small": 0.7}, Predictor.LEARNED)
    tokens = at_once(predictor, request(token_ids=True))
    assert (known(tokens), tokens.source, tokens.task) == ({"large": 0.9}, Predictor.TABLE, "tokens")


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe", b"heliotrope-quality 1\nsha256 0\n{}"])
def test_a_file_that_cannot_be_used_is_a_problem_and_the_table_holds(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "q").write_bytes(content)
    predictor, problem = load_predictor(tmp_path / "q")
    assert problem is not None
    assert "the policy's table holds" in problem
    assert at_once(predictor).fallback == "the quality model cannot be used"


@dataclass
class Carbon:
    rules: ModelRules | None
    enforce: bool = True

    def policy(self) -> DecisionPolicy:
        return DecisionPolicy("p", models=self.rules, enforce=self.enforce)

    def regions(self) -> dict[str, Any]:
        return {}


def test_the_router_charges_processor_time_and_says_who_is_missing() -> None:
    seconds = iter([1.0, 1.5])
    router = ModelRouter(
        Carbon(ModelRules({"large": GROUP}, predictor=Predictor.HTTP)), {}, CpuMeter(20.0, lambda: next(seconds))
    )
    group = router.group_for(request())
    assert group is GROUP
    got: list[Prediction] = []
    router.predict(request(), group, None, got.append)
    assert got[0].router_joules == 10.0
    assert got[0].fallback == "no predictor http is set up"
    assert ModelRouter(Carbon(None), {}).group_for(request()) is None


class Later:
    """Answers when it is told to."""

    def predict(self, request: LlmRequest, group: Group, task: str, then: Callable[[Prediction], None]) -> None:
        self.then = then


def test_what_others_do_while_a_request_waits_is_not_charged_to_it() -> None:
    seconds = iter([1.0, 1.25])
    later = Later()
    rules = ModelRules({"large": GROUP}, predictor=Predictor.HTTP)
    router = ModelRouter(Carbon(rules), {Predictor.HTTP: later}, CpuMeter(20.0, lambda: next(seconds)))
    got: list[Prediction] = []
    router.predict(request(), GROUP, None, got.append)
    later.then(Prediction({}, Predictor.HTTP, "chat"))
    assert [prediction.router_joules for prediction in got] == [5.0]


@dataclass
class Scorer:
    """A real HTTP server that answers as it is told."""

    answer: Callable[[web.Request], Awaitable[web.StreamResponse]]
    seen: list[dict[str, Any]] = field(default_factory=list)

    async def handle(self, asked: web.Request) -> web.StreamResponse:
        self.seen.append(await asked.json())
        return await self.answer(asked)


def says(document: Any, status: int = 200) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(text=document if isinstance(document, str) else json.dumps(document), status=status)

    return answer


async def never(_: web.Request) -> web.StreamResponse:
    await asyncio.sleep(30.0)
    return web.Response()


@asynccontextmanager
async def running(scorer: Scorer, **settings: Any) -> AsyncIterator[HttpScorer]:
    app = web.Application()
    app.router.add_post("/score", scorer.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.0, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    chosen = {"timeout_s": 5.0, **settings}
    try:
        async with HttpScorer(ScorerSettings(f"http://127.0.0.1:{port}/score", **chosen), Clock(), Random(1)) as asked:
            yield asked
    finally:
        await runner.cleanup()


async def scored(scorer: HttpScorer, asked: LlmRequest | None = None) -> Prediction:
    got: asyncio.Future[Prediction] = asyncio.get_running_loop().create_future()
    scorer.predict(asked or request(), GROUP, "chat", got.set_result)
    async with asyncio.timeout(10.0):
        return await got


async def test_a_scorer_is_asked_for_the_members_and_its_answer_counts() -> None:
    server = Scorer(says({"quality": {"small": 0.8, "other": 1.0}}))
    async with running(server) as scorer:
        prediction = await scored(scorer, request(b"x" * 99_999))
    assert (known(prediction), prediction.source) == ({"large": 0.9, "small": 0.8}, Predictor.HTTP)
    (seen,) = server.seen
    assert seen["models"] == ["large", "small"]
    assert len(seen["prompt"]) == MAX_PROMPT_BYTES
    assert scorer.state.results == {"scored": 1}
    assert scorer.state.waiting == 0


@pytest.mark.parametrize(
    "answer",
    [
        says("{}"),
        says("no json"),
        says("[" * 90_000),
        says({"quality": {"small": 1.5}}),
        says({"quality": {"small": True}}),
        says('{"quality": {"small": NaN}}'),
        says({"quality": {"small": 0.5}}, status=500),
        says("x" * (MAX_ANSWER_BYTES + 1)),
    ],
)
async def test_an_unusable_answer_leaves_the_table_and_the_scorer_a_rest(answer: Any) -> None:
    server = Scorer(answer)
    async with running(server, first_rest_s=60.0, longest_rest_s=60.0) as scorer:
        first, second = await scored(scorer), at_once(scorer)
    assert (first.source, first.fallback) == (Predictor.TABLE, "the scorer gave no usable answer")
    assert second.fallback == "the scorer has failed and is left alone"
    assert len(server.seen) == 1
    assert scorer.state.results == {"failed": 1, "resting": 1}


async def test_a_request_waits_no_longer_than_the_timeout_and_blocks_nobody() -> None:
    async with running(Scorer(never), timeout_s=0.05, max_waiting=1) as scorer:
        waiting = asyncio.ensure_future(scored(scorer))
        await asyncio.sleep(0)
        assert at_once(scorer).fallback == "too many requests wait for the scorer"
        assert (await waiting).fallback == "the scorer did not answer in time"
    assert scorer.state.results == {"full": 1, "timeout": 1}


async def test_what_waits_at_the_end_is_answered_by_the_table() -> None:
    async with running(Scorer(never)) as scorer:
        waiting = asyncio.ensure_future(scored(scorer))
        await asyncio.sleep(0.05)
    assert (await waiting).fallback == "the picker is stopping"
    assert at_once(scorer).fallback == "the scorer is not running"


async def test_a_scorer_that_recovers_is_asked_again() -> None:
    server = Scorer(says("broken"))
    async with running(server, first_rest_s=0.001, longest_rest_s=0.001) as scorer:
        await scored(scorer)
        server.answer = says({"quality": {"small": 0.8}})
        await asyncio.sleep(0.01)
        assert (await scored(scorer)).source is Predictor.HTTP


async def test_a_scorer_that_nobody_runs_costs_one_failure() -> None:
    settings = ScorerSettings("http://127.0.0.1:9/score", timeout_s=5.0, first_rest_s=60.0, longest_rest_s=60.0)
    async with HttpScorer(settings, Clock(), Random(1)) as scorer:
        assert (await scored(scorer)).fallback == "the scorer gave no usable answer"
        assert at_once(scorer).fallback == "the scorer has failed and is left alone"
