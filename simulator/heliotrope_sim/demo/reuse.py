"""How much of the prompts an arm found in caches, and how much of it engines computed a second time."""

from collections.abc import Sequence
from typing import Any

from heliotrope_sim.demo.client import RequestResult


def reuse(results: Sequence[RequestResult]) -> dict[str, Any]:
    """Sums over the answered requests, by what engines said of them; see `docs/demo.md` for each key."""
    answered = [r for r in results if not r.failed]
    prompt = sum(r.prompt_tokens for r in answered)
    cached = sum(r.cached_tokens for r in answered)
    served = {(r.conversation, r.turn): r.engine for r in answered if r.conversation is not None}
    later = [(talk, turn) for talk, turn in served if turn > 0]
    return {
        "prompt_tokens": prompt,
        "cached_prompt_tokens": cached,
        "cache_hit_share": cached / prompt if prompt else None,
        "recomputed_prompt_tokens": sum(max(r.history_tokens - r.cached_tokens, 0) for r in answered),
        "later_turns": len(later),
        "later_turns_elsewhere": sum(served[talk, turn] != served.get((talk, turn - 1)) for talk, turn in later),
    }
