"""What a chat request says of reasoning, in the fields that engines read.

| field | vLLM | SGLang |
|---|---|---|
| `reasoning_effort` | a word | a word, or a number from 0 to 0.99 |
| `reasoning.effort` | - | the same, and wins |
| `thinking_token_budget` | a limit; -1: none | - |
| `custom_params.thinking_budget` | - | a limit |
| `chat_template_kwargs` | for the model's template | the same |

Templates read `thinking_budget`, `reasoning_effort`, and `enable_thinking` or `thinking`, each model what it knows.
A client's `extra_body` is merged into the body before it is sent, so it is no field of its own. Which engine will read
the body is not known here, and one ignores what another refuses; so whatever cannot be read is unknown, not an error.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from heliotrope.predict.reasoning import UNSAID, Effort, Reasoning

MAX_BUDGET_TOKENS = 2**31 - 1
"""What is larger limits nothing."""
SWITCHES = ("enable_thinking", "thinking")
"""By which templates of hybrid models turn reasoning off: Qwen's, DeepSeek's."""

T = TypeVar("T")

_EFFORTS = {effort.name.lower(): effort for effort in Effort}


def reasoning_of(
    *,
    reasoning_effort: Any = None,
    reasoning: Any = None,
    thinking_token_budget: Any = None,
    custom_params: Any = None,
    chat_template_kwargs: Any = None,
) -> Reasoning:
    """Read the fields of a body, as decoded from JSON. A limit that engines enforce counts before a template's hint."""
    template = _mapping(chat_template_kwargs)
    effort = _first(_effort, (_mapping(reasoning).get("effort"), reasoning_effort, template.get("reasoning_effort")))
    if any(template.get(switch) is False for switch in SWITCHES):
        effort = Effort.NONE
    limits = (
        thinking_token_budget,
        _mapping(custom_params).get("thinking_budget"),
        template.get("thinking_budget"),
    )
    budget = _first(_budget, limits)
    return UNSAID if effort is None and budget is None else Reasoning(effort, budget)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _effort(value: Any) -> Effort | None:
    """Of a word; SGLang's numbers are not on this scale."""
    return _EFFORTS.get(value.lower()) if isinstance(value, str) else None


def _budget(value: Any) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 <= value <= MAX_BUDGET_TOKENS else None


def _first(read: Callable[[Any], T | None], values: tuple[Any, ...]) -> T | None:
    return next((found for found in map(read, values) if found is not None), None)
