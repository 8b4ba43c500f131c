"""What a calibration reads off an engine's metrics page (vLLM's names)."""

from collections.abc import Mapping
from dataclasses import dataclass

from heliotrope_agent.calibrate.errors import EngineUnreachableError

_RUNNING = "vllm:num_requests_running"
_WAITING = "vllm:num_requests_waiting"
_PROMPT = "vllm:prompt_tokens_total"
_GENERATED = "vllm:generation_tokens_total"
_CACHED = "vllm:prompt_tokens_cached_total"
_HITS = "vllm:prefix_cache_hits_total"
_STEPS = "vllm:iteration_tokens_total_count"
_PREEMPTIONS = "vllm:num_preemptions_total"
_NEEDED = (_RUNNING, _WAITING, _PROMPT, _GENERATED)
_KNOWN = frozenset((*_NEEDED, _CACHED, _HITS, _STEPS, _PREEMPTIONS))


@dataclass(frozen=True, slots=True)
class Page:
    """One reading of an engine's page; counters are since its start, summed over its data-parallel ranks."""

    at_s: float
    """On the calibration's clock: the middle between asking and the answer."""
    took_s: float
    """From asking to the answer: how well `at_s` is known."""
    running: int
    """Requests in the batch."""
    waiting: int
    """Requests in the queue."""
    prompt_tokens: int
    cached_tokens: int
    """Those of `prompt_tokens` that were not computed."""
    generated_tokens: int
    steps: int | None
    """Steps so far; None: the engine does not count them."""
    preemptions: int

    @property
    def in_flight(self) -> int:
        """Requests that have not ended."""
        return self.running + self.waiting

    @property
    def computed_tokens(self) -> int:
        """Prompt tokens that were computed."""
        return self.prompt_tokens - self.cached_tokens


def read_page(text: str, at_s: float, took_s: float = 0.0) -> Page:
    """The numbers of a page.

    Raises:
        EngineUnreachableError: if it lacks one that is needed; names it.
    """
    found = _sums(text)
    for name in _NEEDED:
        if name not in found:
            raise EngineUnreachableError(
                f"the engine's /metrics has no {name}: it is no vLLM, or its statistics are off (--disable-log-stats)"
            )
    cached = found.get(_CACHED, found.get(_HITS, 0.0))
    return Page(
        at_s=at_s,
        took_s=took_s,
        running=round(found[_RUNNING]),
        waiting=round(found[_WAITING]),
        prompt_tokens=round(found[_PROMPT]),
        cached_tokens=round(cached),
        generated_tokens=round(found[_GENERATED]),
        steps=round(found[_STEPS]) if _STEPS in found else None,
        preemptions=round(found.get(_PREEMPTIONS, 0.0)),
    )


def _sums(text: str) -> Mapping[str, float]:
    sums: dict[str, float] = {}
    for line in text.splitlines():
        if not line.startswith("vllm:"):
            continue
        name = line[: min(at for at in (line.find("{"), line.find(" ")) if at > 0)] if " " in line else line
        if name in _KNOWN:
            try:
                sums[name] = sums.get(name, 0.0) + float(line.rpartition(" ")[2])
            except ValueError:
                continue
    return sums
