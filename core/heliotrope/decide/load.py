"""The load of many endpoints, projected from their last metrics and the dispatches since to one moment.

An endpoint's facts are a row of numbers that whoever watches it keeps up to date as things happen; a projection reads
all rows at once. NaN is unknown and passes through.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from heliotrope.decide.candidates import FloatColumn, FloatMatrix


class Fact(IntEnum):
    """Position in an endpoint's row. Times are monotonic seconds; "own" is what was sent there from here."""

    SCRAPED_S = 0
    """When its metrics were read; NaN: never."""
    RUNNING = 1
    """Sequences in its batch then, of everybody."""
    WAITING = 2
    KV_TOKENS = 3
    KV_CAPACITY_TOKENS = 4
    POWER_WATTS = 5
    SM_CLOCK_MHZ = 6
    OWN_AT_SCRAPE = 7
    """Own requests then: what it had beyond them belongs to others."""
    OWN_WAITING_AT_SCRAPE = 8
    OWN = 9
    """Own requests now; so are the following."""
    OWN_WAITING = 10
    """Of them, those that wait for their first token."""
    OWN_WAITING_TOKENS = 11
    """Their uncached prompt tokens."""
    OLDEST_WAITING_S = 12
    """When the first of them was sent; NaN without any."""
    PROMPT_TOKENS = 13
    """Of the own requests."""
    OUTPUT_TOKENS = 14
    """That they were expected to produce."""
    TOKENS_SINCE_SCRAPE = 15
    """Prompt tokens of those that were sent since the metrics were read."""
    PREFILL_SECONDS = 16
    """That own prefills were expected to take, fading with `DUTY_TIME_CONSTANT_SECONDS`, as of the next."""
    PREFILL_AS_OF_S = 17
    PIECE_S = 18
    """When the last piece of an answer came from there; NaN: never."""
    RECENT_RUNNING = 19
    """Sequences in the batch, smoothed (`heliotrope.predict.recent_load`)."""
    RECENT_PROMPT_RATE = 20
    NEXT_DUE_S = 21
    """When the first of those that wait unseen is taken to wait no longer; infinite without any."""
    OWN_WAITING_SQUARED_TOKENS = 22
    """Σ n² over the own prompts that wait, as prefill's attention costs."""
    STEP_BEGAN_S = 23
    """When the running step began (`heliotrope.predict.step_phase`); NaN: nobody knows."""
    STEP_PREFILLS = 24
    """1 if it computes prompts, else 0."""
    KV_USAGE = 25
    """Share of its KV blocks in use when its metrics were read."""


FACTS = len(Fact)
DUTY_TIME_CONSTANT_SECONDS = 5.0
LONGEST_DUTY = 0.95
LONGEST_STEP_SECONDS = 5.0
"""A step that seems to have run longer has ended without anybody here having seen it."""


class Column(IntEnum):
    """Line of a projection; `Loads` says what each means."""

    RUNNING = 0
    WAITING = 1
    WAITING_TOKENS = 2
    OLDEST_WAITING_SECONDS = 3
    KV_TOKENS = 4
    PREFILL_DUTY = 5
    PREFILL_TOKENS_IN_FLIGHT = 6
    DECODE_TOKENS_IN_FLIGHT = 7
    KV_CAPACITY_TOKENS = 8
    POWER_WATTS = 9
    SM_CLOCK_MHZ = 10
    SECONDS_SINCE_PIECE = 11
    RECENT_RUNNING = 12
    RECENT_PROMPT_TOKENS_PER_SECOND = 13
    WAITING_SQUARED_TOKENS = 14
    STEP_SECONDS = 15
    STEP_PREFILLS = 16
    KV_USAGE = 17


COLUMNS = len(Column)


@dataclass(frozen=True, slots=True)
class Loads:
    """Columns of length n, of one moment."""

    table: FloatMatrix
    """Shape (`COLUMNS`, n)."""

    def __len__(self) -> int:
        return int(self.table.shape[1])

    @property
    def running(self) -> FloatColumn:
        """Sequences in the batch, of everybody."""
        return self._line(Column.RUNNING)

    @property
    def waiting(self) -> FloatColumn:
        """Requests queued before the next one's prefill."""
        return self._line(Column.WAITING)

    @property
    def waiting_tokens(self) -> FloatColumn:
        """Their uncached prompt tokens."""
        return self._line(Column.WAITING_TOKENS)

    @property
    def oldest_waiting_seconds(self) -> FloatColumn:
        """How long the first of our own in the queue has waited; 0 if none of ours waits."""
        return self._line(Column.OLDEST_WAITING_SECONDS)

    @property
    def kv_tokens(self) -> FloatColumn:
        """Tokens that the KV cache holds for the batch."""
        return self._line(Column.KV_TOKENS)

    @property
    def prefill_duty(self) -> FloatColumn:
        """Share of recent time that own prefills are expected to have taken, in [0, 1)."""
        return self._line(Column.PREFILL_DUTY)

    @property
    def prefill_tokens_in_flight(self) -> FloatColumn:
        """Of own requests that have not answered yet."""
        return self._line(Column.PREFILL_TOKENS_IN_FLIGHT)

    @property
    def decode_tokens_in_flight(self) -> FloatColumn:
        """That own open requests were expected to produce."""
        return self._line(Column.DECODE_TOKENS_IN_FLIGHT)

    @property
    def kv_capacity_tokens(self) -> FloatColumn:
        """What the KV cache can hold."""
        return self._line(Column.KV_CAPACITY_TOKENS)

    @property
    def power_watts(self) -> FloatColumn:
        """Of all accelerators of the endpoint at the last reading."""
        return self._line(Column.POWER_WATTS)

    @property
    def sm_clock_mhz(self) -> FloatColumn:
        """Mean over them."""
        return self._line(Column.SM_CLOCK_MHZ)

    @property
    def seconds_since_piece(self) -> FloatColumn:
        """Since the last piece of an answer to us came from there: a step of the engine ended just before it."""
        return self._line(Column.SECONDS_SINCE_PIECE)

    @property
    def recent_running(self) -> FloatColumn:
        """Sequences in the batch, smoothed (`heliotrope.predict.recent_load`)."""
        return self._line(Column.RECENT_RUNNING)

    @property
    def recent_prompt_tokens_per_second(self) -> FloatColumn:
        """Prompt tokens that the engine computes for everybody, smoothed likewise."""
        return self._line(Column.RECENT_PROMPT_TOKENS_PER_SECOND)

    @property
    def waiting_squared_tokens(self) -> FloatColumn:
        """Σ n² over the prompts that wait."""
        return self._line(Column.WAITING_SQUARED_TOKENS)

    @property
    def step_seconds(self) -> FloatColumn:
        """How long the running step has run (`heliotrope.predict.step_phase`); NaN where nobody knows."""
        return self._line(Column.STEP_SECONDS)

    @property
    def step_prefills(self) -> FloatColumn:
        """1 where it computes prompts, 0 where it decodes; NaN where nobody knows."""
        return self._line(Column.STEP_PREFILLS)

    @property
    def kv_usage(self) -> FloatColumn:
        """Share of KV blocks in use at the last reading, in [0, 1]."""
        return self._line(Column.KV_USAGE)

    def rows(self, rows: "np.typing.NDArray[np.intp]") -> "Loads":
        """Those of some endpoints, in this order."""
        # Of one layout as an index would not leave it, so that no loop is compiled for another.
        return Loads(self.table.take(rows, axis=1))

    def _line(self, column: Column) -> FloatColumn:
        line: FloatColumn = self.table[column]
        return line


def project(facts: FloatMatrix, now_s: float, stale_after_s: float) -> Loads:
    """The loads now: what others had at the last reading, plus own requests in flight.

    All of an endpoint is unknown where its metrics are missing, NaN, or older than `stale_after_s`: what others sent
    there is not known then.

    Args:
        facts: shape (n, `FACTS`).
        now_s: monotonic.
        stale_after_s: see above.
    """
    from heliotrope.decide.projection import fill

    table = np.empty((COLUMNS, len(facts)))
    fill(facts, now_s, stale_after_s, table)
    return Loads(table)
