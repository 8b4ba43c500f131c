"""An engine's load of the recent past, smoothed from its metrics pages.

What an endpoint holds at one moment says little of what will arrive there while a request is served. Its batch and
the prompt tokens that it computes per second, averaged over the last half minute, say more: prefills stall decoding,
and the batch shares each step's energy.

A mean weighs each second by exp(-age / `TIME_CONSTANT_SECONDS`) and is divided by the weight of what was observed, so
that pages may come at any pace, may be missing, and a young mean is not drawn towards zero.
"""

import math
from dataclasses import dataclass, replace

TIME_CONSTANT_SECONDS = 30.0
"""Load from this long ago counts e times less than load of now. Of 5, 10, 30 and 60 s it served the models best."""
NAN = float("nan")


@dataclass(frozen=True, slots=True)
class SmoothedMean:
    """A mean over time; NaN before anything was observed."""

    weighted: float = 0.0
    weight: float = 0.0
    """Share of the window that was observed, in [0, 1)."""

    @property
    def value(self) -> float:
        """In the unit of what is averaged."""
        return self.weighted / self.weight if self.weight > 0.0 else NAN

    def after(self, seconds: float, level: float) -> "SmoothedMean":
        """The mean once this many seconds at this level have passed; NaN: unknown, so that the past only fades."""
        kept = math.exp(-seconds / TIME_CONSTANT_SECONDS)
        if not math.isfinite(level):
            return SmoothedMean(self.weighted * kept, self.weight * kept)
        return SmoothedMean(self.weighted * kept + level * (1.0 - kept), self.weight * kept + (1.0 - kept))


@dataclass(frozen=True, slots=True)
class RecentLoad:
    """What has been read of one engine up to `read_s`."""

    read_s: float = NAN
    """Monotonic time of the last page; NaN before the first."""
    batch: SmoothedMean = SmoothedMean()
    prompt_rate: SmoothedMean = SmoothedMean()
    counter: float = NAN
    """The engine's count of prompt tokens when it was last known."""
    counter_s: float = NAN

    @property
    def running(self) -> float:
        """Mean number of sequences in the batch; NaN until two pages said so."""
        return self.batch.value

    @property
    def prompt_tokens_per_second(self) -> float:
        """Mean rate at which the engine computes prompts; NaN until two pages with the same counter were read."""
        return self.prompt_rate.value


def after_page(recent: RecentLoad, read_s: float, running: float | None, prompt_tokens: float | None) -> RecentLoad:
    """The recent load once another page was read.

    Args:
        recent: up to the page before.
        read_s: when this one was read, monotonic; one that is not later only sets the counter anew.
        running: sequences in the batch, taken to have been so since the page before; None: the page does not say.
        prompt_tokens: the engine's own count of prompt tokens computed since its start; None: the page does not say,
            and the next page that does covers the time between. A count that fell is of another engine process: what
            it did between the two pages is unknown.
    """
    counter = NAN if prompt_tokens is None else prompt_tokens
    known = math.isfinite(counter)
    elapsed = read_s - recent.read_s
    if not elapsed > 0.0:
        first_s = read_s if math.isnan(recent.read_s) else recent.read_s
        if not known:
            return replace(recent, read_s=first_s)
        return replace(recent, read_s=first_s, counter=counter, counter_s=first_s)
    batch = recent.batch.after(elapsed, NAN if running is None else running)
    if not known:
        return replace(recent, read_s=read_s, batch=batch)
    rate, since = recent.prompt_rate, read_s - recent.counter_s
    if math.isfinite(since):
        grown = counter - recent.counter
        rate = rate.after(since, grown / since if grown >= 0.0 else NAN)
    return RecentLoad(read_s, batch, rate, counter, read_s)
