"""llm-d's deciders: whether a prompt is prefilled, or its images are encoded, at another endpoint."""

from pydantic import Field

from heliotrope_epp.plugins.interface import LlmRequest, Option
from heliotrope_epp.plugins.parameters import StrictModel

ALWAYS_DISAGG_PD_DECIDER = "always-disagg-pd-decider"
PREFIX_BASED_PD_DECIDER = "prefix-based-pd-decider"
ALWAYS_DISAGG_MULTIMODAL_DECIDER = "always-disagg-multimodal-decider"


class AlwaysDisaggPdDecider:
    """Every prompt is."""

    def prefills_elsewhere(self, request: LlmRequest, decode: Option) -> bool:  # noqa: ARG002
        """True."""
        return True


class AlwaysDisaggMultimodalDecider:
    """Images are encoded elsewhere whenever there are some."""

    def encodes_elsewhere(self, request: LlmRequest) -> bool:
        """Whether there is anything beside text."""
        return bool(request.media)


class PrefixBasedPdDeciderParameters(StrictModel):
    """llm-d's parameters of the type."""

    non_cached_tokens: int = Field(default=0, ge=0)
    """Least number of prompt tokens that the decode endpoint does not cache; 0: no prompt is prefilled elsewhere."""
    prompt_tokens: int = Field(default=0, ge=0)
    """Least length of the prompt."""


class PrefixBasedPdDecider:
    """Prompts are of which the decode endpoint would have to compute much."""

    def __init__(self, parameters: PrefixBasedPdDeciderParameters) -> None:
        self._least_uncached = parameters.non_cached_tokens
        self._least_prompt = parameters.prompt_tokens

    def prefills_elsewhere(self, request: LlmRequest, decode: Option) -> bool:
        """Compares the prompt and what is believed to be cached with the parameters."""
        if self._least_uncached == 0 or request.prompt_tokens < self._least_prompt:
            return False
        return request.prompt_tokens - decode.cached_tokens >= self._least_uncached
