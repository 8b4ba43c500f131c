"""What becomes of a request that another model may answer: its body, its expectations, what its client is told."""

from dataclasses import replace

from heliotrope.decide.quality import ModelChoice
from heliotrope.predict.output_length import OutputLengths
from heliotrope.predict.reasoning import Reasoning
from heliotrope_epp.director.lengths import expected_of
from heliotrope_epp.plugins.interface import LlmRequest
from heliotrope_epp.plugins.models.rewrite import rewritten
from heliotrope_epp.plugins.scheduled import ScheduleResult, served_model
from heliotrope_epp.transport.interface import Headers

MODEL_HEADER = "x-heliotrope-model"
"""On the answer: the model that answered."""
REASON_HEADER = "x-heliotrope-model-reason"
EFFORT_HEADER = "x-heliotrope-reasoning-effort"
"""On the answer: the effort that was set in place of the request's."""


def body_of(body: bytes, request: LlmRequest, choice: ModelChoice | None) -> bytes | None:
    """The body to send; None leaves the client's as it is, byte for byte."""
    if choice is None or (choice.model == request.model and choice.judged.effort is None):
        return None
    return rewritten(body, choice.model, choice.judged.effort)


def answer_headers(choice: ModelChoice | None) -> Headers:
    """What tells the client; empty where the policy opts nothing in."""
    if choice is None:
        return ()
    headers = ((MODEL_HEADER, choice.model), (REASON_HEADER, choice.why))
    effort = choice.judged.effort
    return headers if effort is None else (*headers, (EFFORT_HEADER, effort.name.lower()))


def as_answered(request: LlmRequest, choice: ModelChoice | None, lengths: OutputLengths, now_s: float) -> LlmRequest:
    """The request with the model that answers and the effort that is set: lengths are expected and learned by both."""
    if choice is None or (choice.model == request.model and choice.judged.effort is None):
        return request
    effort = choice.judged.effort
    expected_tokens = expected_of(lengths, request, choice.model, now_s)
    return replace(
        request,
        answering=choice.model,
        reasoning=request.reasoning if effort is None else Reasoning(effort),
        expected_output_tokens=expected_tokens * (1.0 if effort is None else choice.judged.output_share),
    )


def addresses(result: ScheduleResult) -> tuple[str, ...]:
    """Where to send it, best first; where the body names a model, only endpoints that serve it."""
    options = result.pick.options
    if result.model_choice is not None:
        served = served_model(options[0].state)
        options = tuple(option for option in options if served_model(option.state) == served)
    return tuple(option.state.endpoint.host_port for option in options)
