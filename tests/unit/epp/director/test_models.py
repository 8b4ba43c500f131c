"""Requests that another model may answer: body, headers, what is refused and what stays as it was."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.epp.director.test_director import Bench, Gateway, chat, report

from heliotrope.decide.candidates import Hardware
from heliotrope.decide.policy import DecisionPolicy, ServiceClass
from heliotrope.decide.quality import Group, Level, Lower, Member, ModelRules, Prediction, Predictor
from heliotrope.decide.recorded import read
from heliotrope.predict.length_distribution import LengthContext
from heliotrope.predict.reasoning import Effort
from heliotrope_cli.explain_text import sentences
from heliotrope_epp.director.lengths import context
from heliotrope_epp.director.outcome import routed
from heliotrope_epp.plugins.interface import LlmRequest
from heliotrope_epp.transport.interface import Cause, Report

LEVELS = (Level(Effort.LOW, 0.5, 0.98),)


def rules(small: float = 0.8, large: float = 0.9, **changes: Any) -> ModelRules:
    members = (Member("m", "m", quality=large, levels=LEVELS), Member("small", "small", quality=small, levels=LEVELS))
    return ModelRules({"m": Group("m", members)}, **changes)


def policy(models: ModelRules | None = None, **changes: Any) -> DecisionPolicy:
    return DecisionPolicy("green", ttft_slo_seconds=3.0, tpot_slo_seconds=0.1, models=models, **changes)


def serving(bench: Bench, *, dirty: str | None = "m", clean: str | None = "small") -> Bench:
    for state, model in zip(bench.store.states(), (dirty, clean), strict=True):
        hardware = None if model is None else Hardware("H100", 1, model, "both")
        state.traits = replace(state.traits, hardware=hardware)
    return bench


def headers(answer: Gateway) -> dict[str, str]:
    return dict(answer.response_headers)


def value(bench: Bench, name: str, **labels: str) -> float | None:
    return bench.registry.get_sample_value(name, labels)


def test_a_good_enough_smaller_model_answers_and_the_client_sees_it() -> None:
    bench = serving(Bench(policy=policy(rules())))
    body = chat(temperature=0.70, nested={"b": [1.0, 2e3], "a": "ü\\u00fc"}, seed=12345678901234567890)
    answer = bench.send(Gateway(body))
    assert answer.routed_to == "10.0.0.2:8000"
    assert answer.sent_body is not None
    assert json.loads(answer.sent_body) == {**json.loads(body), "model": "small"}
    assert list(json.loads(answer.sent_body)) == list(json.loads(body))
    assert headers(answer)["x-heliotrope-model"] == "small"
    assert headers(answer)["x-heliotrope-model-reason"] == "quality 0.8 of at least 0.765"
    models = (bench.log.get("r-1") or {})["scheduling"]["models"]
    assert (models["chosen"], models["default"], models["applied"]) == ("small", "m", True)
    assert models["router_joules"] > 0.0
    assert value(bench, "heliotrope_model_choices_total", group="m", model="small", effort="", downgraded="true") == 1.0
    assert value(bench, "heliotrope_model_router_joules_total") == models["router_joules"]
    candidates = (bench.log.get("r-1") or {})["carbon_decision"]["candidates"]
    (joules,) = [each["energy_joules"] for each in candidates if each["chosen"]]
    charged = value(bench, "heliotrope_estimated_joules_total", region="clean")
    assert charged == pytest.approx(joules + models["router_joules"], rel=1e-12)


def test_below_the_floor_only_the_large_model_answers_with_the_body_untouched() -> None:
    answer = serving(Bench(policy=policy(rules(small=0.7)))).send(Gateway(chat()))
    assert (answer.routed_to, answer.sent_body) == ("10.0.0.1:8000", None)
    assert headers(answer)["x-heliotrope-model"] == "m"


def test_an_unknown_quality_is_never_chosen() -> None:
    answer = serving(Bench(policy=policy(rules(small=float("nan"))))).send(Gateway(chat()))
    assert answer.routed_to == "10.0.0.1:8000"


@pytest.mark.parametrize(
    "changes",
    [
        {"models": None},
        {"models": rules(classes=frozenset({"batch"})), "classes": (ServiceClass("batch"),)},
    ],
)
def test_without_the_opt_in_nothing_changes(changes: dict[str, Any]) -> None:
    plain = serving(Bench(policy=policy())).send(Gateway(chat()))
    answer = serving(Bench(policy=replace(policy(), **changes))).send(Gateway(chat()))
    assert (answer.routed_to, answer.sent_body, answer.response_headers, answer.removed) == (
        plain.routed_to,
        None,
        plain.response_headers,
        plain.removed,
    )


def test_under_advise_the_choice_is_shown_and_nothing_is_changed() -> None:
    bench = serving(Bench(policy=policy(rules(small=0.1), enforce=False)))
    answer = bench.send(Gateway(chat()))
    assert (answer.sent_body, answer.response_headers) == (None, ())
    scheduling = (bench.log.get("r-1") or {})["scheduling"]
    assert len(scheduling["profiles"][0]["candidates"]) == 2  # the small model's endpoint as well
    models = scheduling["models"]
    assert (models["applied"], models["chosen"]) == (False, None)
    assert [each["allowed"] for each in models["models"]] == [True, False]


def test_without_the_right_the_choice_is_shown_and_the_default_answers() -> None:
    bench = serving(Bench(policy=policy(rules(lower=Lower.ALWAYS, withheld="the namespace has no such label"))))
    answers = [bench.send(Gateway(chat(reasoning_effort="high"))) for _ in range(10)]
    assert {a.routed_to for a in answers} == {"10.0.0.1:8000"}, "the clean endpoint serves the small model"
    assert {a.sent_body for a in answers} == {None}
    models = (bench.log.get("r-1") or {})["scheduling"]["models"]
    assert (models["applied"], models["chosen"]) == (False, "m")
    assert models["withheld_because"] == "the namespace has no such label"
    assert [each["allowed"] for each in models["models"]] == [True, True], "as it would be with the right"


def test_without_the_right_nobody_waits_for_a_scorer() -> None:
    predictor = Waiting()
    withheld = policy(rules(predictor=Predictor.HTTP, withheld="no label"))
    answer = serving(Bench(policy=withheld, predictors={Predictor.HTTP: predictor})).send(Gateway(chat()))
    assert answer.routed_to is not None
    assert predictor.answers == []


def test_requests_with_images_keep_the_default() -> None:
    bench = serving(Bench(policy=policy(rules())))
    image = {"type": "image_url", "image_url": {"url": "https://pictures.example/1.png"}}
    answer = bench.send(Gateway(chat(messages=[{"role": "user", "content": [image]}])))
    assert (answer.routed_to, headers(answer)["x-heliotrope-model"]) == ("10.0.0.1:8000", "m")
    models = (bench.log.get("r-1") or {})["scheduling"]["models"]
    assert models["fallback"] == "holds more than text, of which quality is not predicted"


def test_held_out_requests_keep_the_default() -> None:
    bench = serving(Bench(policy=policy(rules(), holdout_percent=50)))
    seen = set()
    for i in range(60):
        answer = bench.send(Gateway(chat(), given={"x-request-id": f"r-{i}"}))
        seen.add((answer.ctx.arm, headers(answer)["x-heliotrope-model"]))
    assert seen == {("policy", "small"), ("holdout", "m")}


def test_a_class_that_is_listed_may_be_downgraded() -> None:
    limited = policy(rules(classes=frozenset({"batch"})), classes=(ServiceClass("batch"),))
    answer = serving(Bench(policy=limited)).send(Gateway(chat(), given={"x-heliotrope-class": "batch"}))
    assert headers(answer)["x-heliotrope-model"] == "small"


def test_without_an_endpoint_that_serves_a_member_the_request_goes_as_it_came() -> None:
    answer = serving(Bench(policy=policy(rules())), dirty=None, clean=None).send(Gateway(chat()))
    assert answer.routed_to is not None
    assert answer.sent_body is None
    assert "x-heliotrope-model" not in headers(answer)


def test_effort_is_lowered_only_where_nobody_fixed_it() -> None:
    def sent(**said: Any) -> dict[str, Any]:
        bench = serving(Bench(policy=policy(rules(lower=Lower.UNSAID))))
        answer = bench.send(Gateway(chat(**said)))
        assert ("x-heliotrope-reasoning-effort" in headers(answer)) == (said == {})
        return json.loads(answer.sent_body or chat(**said))  # type: ignore[no-any-return]

    assert sent()["reasoning_effort"] == "low"
    assert sent(reasoning_effort="high")["reasoning_effort"] == "high"
    assert "reasoning_effort" not in sent(thinking_token_budget=100)
    assert "reasoning_effort" not in sent(chat_template_kwargs={"enable_thinking": True})


def tail(tokens: int) -> bytes:
    return b'{"usage": {"prompt_tokens": 140, "completion_tokens": %d}}' % tokens


def obey(bench: Bench, changed: DecisionPolicy) -> None:
    bench.policy = changed
    bench.apply()
    serving(bench)


def answered(bench: Bench, tokens: int, times: int = 1, **fields: Any) -> Gateway:
    for _ in range(times):
        answer = bench.send(Gateway(chat(**fields)))
        bench.director.done(answer.ctx, report(tail=tail(tokens)))
    return answer


def test_the_record_names_the_model_that_answered_and_the_one_that_was_asked_for() -> None:
    bench = serving(Bench(policy=policy(rules())))
    answer = answered(bench, 9)
    assert (bench.finished[0].model, bench.finished[0].asked_model) == ("small", "m")
    assert answer.ctx.request.model == "m", "sessions and the policy's group go by what was asked"
    assert routed(answer.ctx, answer.ctx.request).model == "small"
    kept = serving(Bench(policy=policy(rules(small=0.7))))
    answered(kept, 9)
    assert (kept.finished[0].model, kept.finished[0].asked_model) == ("m", "m")


def test_under_advise_the_asked_model_answers_and_is_learned() -> None:
    bench = serving(Bench(policy=policy(rules(), enforce=False)))
    answered(bench, 900, times=20)
    assert {(each.model, each.asked_model) for each in bench.finished} == {("m", "m")}
    assert bench.lengths.knows("m")
    assert not bench.lengths.knows("small")


def test_lengths_are_those_of_the_model_that_answers() -> None:
    bench = serving(Bench(policy=policy(rules())))
    unseen = bench.send(Gateway(chat()))
    of_the_name = bench.lengths.predict(LengthContext("m"), bench.now_s).mean
    assert unseen.ctx.request.expected_output_tokens == pytest.approx(of_the_name, rel=1e-3)
    bench.director.done(unseen.ctx, report(tail=tail(900)))
    answered(bench, 900, times=200)
    # The large model comes to answer for the same name, briefly.
    obey(bench, policy(rules(small=0.7)))
    brief = answered(bench, 20, times=200)
    assert {each.model for each in bench.finished[:201]} == {"small"}
    assert {each.model for each in bench.finished[201:]} == {"m"}
    assert not brief.ctx.request.answering
    obey(bench, policy(rules()))
    long = bench.send(Gateway(chat()))
    small, name = (bench.lengths.predict(context(long.ctx.request, each), bench.now_s).mean for each in ("small", "m"))
    assert long.ctx.request.expected_output_tokens == pytest.approx(small, rel=0.02)
    assert long.ctx.dispatch.expected_output_tokens == pytest.approx(small, rel=0.02)
    assert small > 600.0
    assert name < 0.7 * small, "the name stands for both models"


def test_a_model_that_is_asked_for_by_its_own_name_knows_what_it_answered_for_others() -> None:
    bench = serving(Bench(policy=policy(rules())))
    answered(bench, 900, times=100)
    direct = bench.send(Gateway(chat(model="small"), subset=("10.0.0.2:8000",)))
    assert direct.ctx.request.expected_output_tokens > 600.0
    assert bench.lengths.expected_tokens("never asked", None, bench.now_s) < 300.0


def test_lengths_are_expected_by_the_effort_that_is_set() -> None:
    ctx = serving(Bench(policy=policy(rules(lower=Lower.UNSAID)))).send(Gateway(chat(max_tokens=1000))).ctx
    plain = serving(Bench(policy=policy(rules()))).send(Gateway(chat(max_tokens=1000))).ctx
    assert ctx.request.reasoning.effort is Effort.LOW
    assert ctx.request.expected_output_tokens == 0.5 * plain.request.expected_output_tokens


def test_the_header_of_the_task_is_ours_alone_and_chooses_the_table_row() -> None:
    members = (Member("m", "m", quality=0.9), Member("small", "small", quality=0.9, by_task={"code": 0.2}))
    bench = serving(Bench(policy=policy(ModelRules({"m": Group("m", members)}))))
    code = bench.send(Gateway(chat(), given={"x-heliotrope-task": "code"}))
    assert headers(code)["x-heliotrope-model"] == "m"
    assert code.removed == ("x-heliotrope-task",)
    assert headers(bench.send(Gateway(chat())))["x-heliotrope-model"] == "small"


class Waiting:
    """A predictor that answers when the test says so."""

    def __init__(self) -> None:
        self.answers: list[Callable[[Prediction], None]] = []

    def predict(self, request: LlmRequest, group: Group, task: str, then: Callable[[Prediction], None]) -> None:
        self.answers.append(then)

    def answer(self, **quality: float) -> None:
        self.answers.pop(0)(Prediction(quality, Predictor.HTTP, "chat"))


def waiting(**settings: Any) -> tuple[Bench, Waiting]:
    predictor = Waiting()
    scored = policy(rules(predictor=Predictor.HTTP))
    return serving(Bench(policy=scored, predictors={Predictor.HTTP: predictor}, **settings)), predictor


def test_a_request_that_waits_for_its_score_is_routed_when_it_comes() -> None:
    bench, predictor = waiting()
    request = bench.send(Gateway(chat()))
    assert request.routed_to is None
    predictor.answer(m=0.9, small=0.89)
    assert headers(request)["x-heliotrope-model"] == "small"
    bench.director.done(request.ctx, Report(200, {}, None, 1, 1, 0.0, 0.0, 0.1, 0.1, 0.1, b"", Cause.COMPLETE))
    assert bench.director.inflight == 0


def test_a_client_that_leaves_while_it_waits_is_forgotten() -> None:
    bench, predictor = waiting()
    request = bench.send(Gateway(chat()))
    request.cancelled = True
    predictor.answer(m=0.9, small=0.89)
    assert (request.routed_to, request.rejected, bench.director.inflight) == (None, None, 0)


def test_the_world_may_change_while_a_request_waits() -> None:
    bench, predictor = waiting()
    request = bench.send(Gateway(chat()))
    bench.endpoints = ()
    before = bench.store.world
    bench.store.apply(replace(before, endpoints=(), traits={}))
    predictor.answer(m=0.9)
    assert (request.rejected, len(bench.director.held)) == (None, 1), "it waits on for an endpoint"
    bench.store.apply(before)
    bench.director.held.look()
    predictor.answer(m=0.9)
    assert request.routed_to is not None
    assert (len(bench.director.held), bench.director.inflight) == (0, 1)


def test_a_defect_after_waiting_is_a_500_and_nobody_hangs(caplog: pytest.LogCaptureFixture) -> None:
    bench, predictor = waiting()
    other = bench.send(Gateway(chat()))
    predictor.answers.pop(0)(Prediction(None, Predictor.HTTP, "chat"))  # type: ignore[arg-type]
    assert other.rejected is not None
    assert other.rejected[0] == 500
    assert "hello" not in caplog.text


def test_under_advise_nobody_waits_for_a_scorer() -> None:
    predictor = Waiting()
    advised = policy(rules(predictor=Predictor.HTTP), enforce=False)
    answer = serving(Bench(policy=advised, predictors={Predictor.HTTP: predictor})).send(Gateway(chat()))
    assert answer.routed_to is not None
    assert predictor.answers == []


def test_the_record_is_explained_in_words() -> None:
    bench = serving(Bench(policy=policy(rules(lower=Lower.UNSAID))))
    bench.send(Gateway(chat()))
    record, _ = read(json.dumps(bench.log.get("r-1")))
    text = "\n".join(sentences(record))
    assert (
        "Model small answers in place of m, at reasoning effort low: quality at least 0.765, 0.85 of the best" in text
    )
    assert "Quality by table for tasks of class chat; predicting took" in text
    plain = serving(Bench(policy=policy()))
    plain.send(Gateway(chat()))
    document = plain.log.get("r-1") or {}
    assert "models" not in document["scheduling"]
    assert "Model" not in "\n".join(sentences(read(json.dumps(document))[0]))
