"""How much work fills a window: chosen once by a pilot, then the same at all clocks, so that contexts are alike."""

import math

from heliotrope.errors import InvalidInputError
from heliotrope_agent.calibrate.window import LEAST_EDGES

PILOT_ANSWER_TOKENS = 64
PILOT_PROMPTS = 24
LEAST_ANSWER_TOKENS = 32
MOST_ANSWER_TOKENS = 32_768
SKIPPED_SHARE = 0.06
"""Of an answer's tokens, at its beginning, that warm the batch up and do not count."""
_END_SHARE = 0.04
"""Of an answer's tokens after which the first sequences may have ended."""


def most_answer_tokens(prompt_tokens: int, max_model_len: int | None) -> int:
    """The longest answer that the model's context has room for; without a known context, one that no test needs.

    Raises:
        InvalidInputError: if there is room for none.
    """
    if max_model_len is None:
        return MOST_ANSWER_TOKENS
    room = max_model_len - prompt_tokens - 1
    if room < LEAST_ANSWER_TOKENS:
        raise InvalidInputError(
            "--decode-prompt-tokens",
            f"the model's context of {max_model_len} tokens leaves no room for answers after {prompt_tokens}",
        )
    return min(room, MOST_ANSWER_TOKENS)


def answer_tokens(window_s: float, seconds_per_token: float) -> int:
    """Tokens of an answer whose counted part takes about a window."""
    wanted = math.ceil(window_s / seconds_per_token / (1.0 - SKIPPED_SHARE - _END_SHARE))
    return max(wanted, LEAST_ANSWER_TOKENS)


def skipped_tokens(answer: int) -> int:
    """Tokens of each answer that do not count."""
    return max(4, math.ceil(answer * SKIPPED_SHARE))


def prompts(window_s: float, tokens_per_second: float, prompt_tokens: int, tokens_per_step: float | None) -> int:
    """Prompts that are prefilled within about a window, in enough steps, beside the first step and the last."""
    wanted = window_s * tokens_per_second / prompt_tokens
    per_step = 1.0 if tokens_per_step is None else tokens_per_step / prompt_tokens
    return math.ceil(max(wanted, 2 * LEAST_EDGES * per_step, 4) + 2 * per_step)
