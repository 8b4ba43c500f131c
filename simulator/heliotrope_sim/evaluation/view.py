"""What a picker knows of an engine: the evaluation asks the real one, which whoever starts it hands in.

Processes never import each other, so the picker's bookkeeping comes in through this protocol; the command wires it.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from heliotrope.decide.candidates import Candidates, Hardware
from heliotrope.engine.model import EngineModel


@dataclass(frozen=True, slots=True)
class Reading:
    """One scrape of an engine and its accelerators."""

    running: int
    waiting: int
    kv_usage: float
    block_size: int
    num_blocks: int
    energy_millijoules: int
    power_watts: float
    """Mean since the scrape before, as NVML averages too."""
    sm_clock_mhz: float
    computed_prompt_tokens: int
    """Since the engine's start, up to the end of the last step."""


class PickerView(Protocol):
    """One endpoint as one picker sees it. Times are monotonic seconds."""

    def scraped(self, reading: Reading, now_s: float) -> None:
        """The engine's metrics arrived."""
        ...

    def candidates(self, cached_tokens: float, now_s: float) -> Candidates:
        """The columns of a decision, of this endpoint alone: the last scrape with own dispatches projected onto it."""
        ...

    def dispatched(
        self,
        now_s: float,
        *,
        prompt_tokens: float,
        uncached_tokens: float,
        prefill_seconds: float,
        first_token_due_s: float,
        expected_output_tokens: float,
    ) -> Any:
        """A request was sent there; returns what `ended` takes."""
        ...

    def piece(self, dispatch: Any, now_s: float) -> None:
        """A piece of its answer has arrived."""
        ...

    def ended(self, dispatch: Any) -> None:
        """Its answer is complete."""
        ...


class ViewFactory(Protocol):
    """Makes the view of an endpoint whose engine the picker believes to be this one; None: it knows no profile."""

    def __call__(self, believed: EngineModel | None, hardware: Hardware) -> PickerView:
        """A picker that has just started."""
        ...
