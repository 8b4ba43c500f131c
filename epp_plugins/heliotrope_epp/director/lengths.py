"""Whose answers' lengths are learned: the model's that answers, and the name's that was asked for.

They differ where a group's rules choose the model. Lengths are the model's doing, so they are learned by its name.
Before it is chosen, what is expected is what requests for the asked name have had, whoever answered them.
"""

from heliotrope.predict.length_distribution import LengthContext
from heliotrope.predict.output_length import OutputLengths
from heliotrope_epp.plugins.interface import LlmRequest


def started(lengths: OutputLengths, request: LlmRequest, now_s: float) -> None:
    """The request was sent."""
    for name in _names(request):
        lengths.started(name, now_s)


def ended(lengths: OutputLengths, request: LlmRequest, started_s: float, now_s: float, tokens: int | None) -> None:
    """It ended with so many output tokens; None: it failed, or nobody counted."""
    for name in _names(request):
        lengths.ended(name, started_s, now_s, tokens, context(request, name))


def expected_of(lengths: OutputLengths, request: LlmRequest, model: str, now_s: float) -> float:
    """Tokens that a model is expected to answer with; those of the asked name while it has not answered anything."""
    if model == request.model or not lengths.knows(model):
        return request.expected_output_tokens
    return lengths.predict(context(request, model), now_s).mean


def _names(request: LlmRequest) -> tuple[str, ...]:
    answering = request.answering_model
    return (answering,) if answering == request.model else (answering, request.model)


def context(request: LlmRequest, model: str) -> LengthContext:
    """What is known of a request that a model may answer."""
    return LengthContext(
        model,
        request.tenant,
        request.prompt_tokens,
        request.max_output_tokens,
        request.streaming,
        request.reasoning,
    )
