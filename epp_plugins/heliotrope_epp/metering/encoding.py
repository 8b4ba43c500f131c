"""The images of routed requests at encoders, from dispatch until the encoder is done with them."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from heliotrope_epp.metering.credited import Credited
from heliotrope_epp.metering.work import Work, prefill_work
from heliotrope_epp.outcomes.meter import EncodedAt

if TYPE_CHECKING:
    from heliotrope_epp.metering.timeline import Timeline

_SHORTEST_S = 1e-3
"""So long an encoder takes at least, if only to find that it remembers an image."""


@dataclass(slots=True, eq=False)
class Encoding(Credited):
    """The images of one request at one encoder."""

    engine: "Timeline"
    dispatched_s: float
    seconds: float
    """That they are expected to keep the encoder busy; more than 0."""
    closed_s: float | None = None
    """When the request ended."""

    @property
    def ended_s(self) -> float | None:
        """When its request ended; None: it goes on."""
        return self.closed_s

    @property
    def due_s(self) -> float:
        """When the encoder is done if it had nothing else to do."""
        return self.dispatched_s + self.seconds

    def covered(self) -> float:
        """For how much of its time the encoder's energy was shared out, in [0, 1]."""
        return min(self.engine.covered(self.dispatched_s, self.due_s) / self.seconds, 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class Image:
    """One image; it is a prompt of its own at the encoder."""

    part: Encoding
    work: Work
    seconds: float


class Images:
    """What one encoder has not done yet, in the order in which it was sent."""

    def __init__(self) -> None:
        self._images: deque[Image] = deque()

    def __len__(self) -> int:
        """How many."""
        return len(self._images)

    def add(self, image: Image) -> None:
        """One more was sent."""
        self._images.append(image)

    def first(self, count: int) -> list[Image]:
        """Take those that were sent first, as the encoder has counted so many."""
        return [self._images.popleft() for _ in range(min(count, len(self._images)))]

    def due(self, until_s: float) -> list[Image]:
        """Take those that must be done by then, where nobody counts them."""
        found = [image for image in self._images if image.part.due_s <= until_s]
        self._keep(lambda image: image.part.due_s > until_s)
        return found

    def holds(self, part: Credited) -> bool:
        """Whether some of a request's are among them."""
        return any(image.part is part for image in self._images)

    def drop(self, part: Credited) -> None:
        """Forget a request's."""
        if self._images:
            self._keep(lambda image: image.part is not part)

    def drop_closed(self, before_s: float) -> None:
        """Forget those whose request had ended by then: the encoder would have counted them."""
        if self._images:
            self._keep(lambda image: image.part.closed_s is None or image.part.closed_s >= before_s)

    def _keep(self, wanted: Callable[[Image], bool]) -> None:
        self._images = deque(image for image in self._images if wanted(image))


def encoding(engine: "Timeline", at: EncodedAt, dispatched_s: float) -> Encoding:
    """What an encoder has of a request.

    An engine that only encodes counts an image that it remembers as a prompt, and has nothing to do with it. Any other
    one prefills images too, as if each were all of a prompt.
    """
    only, images = engine.encodes_only, []
    for tokens in at.image_tokens:
        own_s = at.seconds / len(at.image_tokens)
        images.append((prefill_work(tokens, 0.0), own_s + (0.0 if only else engine.prefill_seconds(tokens, 0.0))))
    images.extend(
        (Work(firsts=1.0) if only else prefill_work(0.0, tokens), _SHORTEST_S) for tokens in at.remembered_tokens
    )
    part = Encoding(engine, dispatched_s, max(sum(seconds for _, seconds in images), _SHORTEST_S))
    for work, seconds in images:
        engine.images.add(Image(part, work, seconds))
    return part
