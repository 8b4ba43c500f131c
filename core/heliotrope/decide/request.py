"""What a decision needs to know of a request. Never its text."""

from dataclasses import dataclass

from heliotrope.media.attachment import Attachment
from heliotrope.predict.reasoning import UNSAID, Reasoning


@dataclass(frozen=True, slots=True)
class RequestProfile:
    """A request as the decision sees it."""

    request_id: str
    model: str
    prompt_tokens: int
    expected_output_tokens: float
    streaming: bool
    ttft_slo_seconds: float | None = None
    """The client's own promise, tighter or looser than the policy's; None: the policy's holds."""
    tpot_slo_seconds: float | None = None
    reasoning: Reasoning = UNSAID
    media: tuple[Attachment, ...] = ()
    """What it holds beside text, each once; its tokens are part of the prompt's where they are known."""
