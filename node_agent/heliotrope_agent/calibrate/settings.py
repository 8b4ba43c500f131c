"""What a calibration is asked to measure."""

from collections.abc import Sequence
from dataclasses import dataclass

from heliotrope.api.v1alpha1.workloadvariant import Phase
from heliotrope.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class Sweep:
    """Clocks × batches × phases, and how well. Times are in engine seconds."""

    clocks: tuple[int, ...]
    """MHz that are measured in any case, descending; the first is the one that drift is judged by."""
    candidates: tuple[int, ...]
    """MHz that may be measured near the minimum, ascending."""
    phases: tuple[Phase, ...] = (Phase.PREFILL, Phase.DECODE)
    decode_batches: tuple[int, ...] = (32,)
    """Sequences that decode together, ascending."""
    prefill_batches: tuple[int, ...] = (32,)
    """Prompts in flight, ascending: enough of them that the engine never waits for the next."""
    batch: int | None = None
    """Decode batch that the profile is written for; None: by `tpot_seconds`, else the largest."""
    tpot_seconds: float | None = None
    """Time per output token that is promised."""
    prompt_tokens: int = 2048
    """Of a prompt in prefill."""
    decode_prompt_tokens: int = 256
    """Of a prompt in decode."""
    window_seconds: float = 10.0
    """Length of a window at the highest clock, about."""
    idle_seconds: float = 10.0
    settle_seconds: float = 5.0
    """At least this long after a change of clock nothing is measured."""
    min_repeats: int = 3
    max_repeats: int = 8
    target_percent: float = 3.0
    """Half width of the 90 % interval of J/token from repeats at which a point is known well enough."""
    refinements: int = 10
    """Most clocks that are tried near the minimum, per phase."""

    @property
    def loads(self) -> tuple[tuple[Phase, int], ...]:
        """All phases with their batches."""
        found: list[tuple[Phase, int]] = []
        for phase in self.phases:
            batches = self.prefill_batches if phase is Phase.PREFILL else self.decode_batches
            found += [(phase, batch) for batch in batches]
        return tuple(found)

    def check(self) -> None:
        """Refuse what cannot be measured.

        Raises:
            InvalidInputError: naming the option.
        """
        if not self.clocks or not self.candidates:
            raise InvalidInputError("--clocks", "there is no clock in this range that the GPUs support")
        if not self.phases:
            raise InvalidInputError("--phase", "name at least one: prefill, decode")
        for name, batches in (("--batches", self.decode_batches), ("--prompts-in-flight", self.prefill_batches)):
            if not batches or min(batches) < 1 or max(batches) > 4096:
                raise InvalidInputError(name, "must be numbers from 1 to 4096")
        if self.batch is not None and self.batch not in self.decode_batches:
            raise InvalidInputError("--batch", f"{self.batch} is none of --batches {_listed(self.decode_batches)}")
        if self.batch is not None and self.tpot_seconds is not None:
            raise InvalidInputError("--batch", "give either --batch or --tpot-ms: both choose the batch of the profile")
        if not 1 <= self.min_repeats <= self.max_repeats <= 100:
            raise InvalidInputError("--repeats", "must be at least 1 and at most --max-repeats, which is at most 100")
        for name, value, low, high in (
            ("--window-seconds", self.window_seconds, 0.5, 600.0),
            ("--idle-seconds", self.idle_seconds, 0.5, 600.0),
            ("--settle-seconds", self.settle_seconds, 0.0, 600.0),
            ("--target-percent", self.target_percent, 0.1, 50.0),
        ):
            if not low <= value <= high:
                raise InvalidInputError(name, f"{value:g} is not between {low:g} and {high:g}")
        if not 0 <= self.refinements <= 64:
            raise InvalidInputError("--refinements", "must be from 0 to 64")
        for name, tokens in (
            ("--prompt-tokens", self.prompt_tokens),
            ("--decode-prompt-tokens", self.decode_prompt_tokens),
        ):
            if not 1 <= tokens <= 1_000_000:
                raise InvalidInputError(name, "must be from 1 to 1000000")


def _listed(values: Sequence[int]) -> str:
    return ", ".join(str(value) for value in values)
