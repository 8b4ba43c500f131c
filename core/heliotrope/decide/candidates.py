"""The plans for a request, as columns: position i of every column is plan i.

A plan is an endpoint with a way to come by the KV cache. The first rows are the endpoints themselves, each with what it
caches; plans that fetch blocks from elsewhere to one of them follow, and last those whose prompt another endpoint
prefills, so that an endpoint may stand in several rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from heliotrope.cache.action import KvAction
from heliotrope.carbon.footprint import Embodied as Embodied
from heliotrope.carbon.signal import CarbonSignal

if TYPE_CHECKING:
    from heliotrope.decide.encode import Encoding

FloatColumn = NDArray[np.float64]
FloatMatrix = NDArray[np.float64]
BoolColumn = NDArray[np.bool_]
IntColumn = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class RegionView:
    """What a decision knows of a region."""

    name: str
    signal: CarbonSignal
    pue: float
    wue_l_per_kwh: float = float("nan")
    rtt_seconds: float = 0.0
    """Network round trip from here to the region."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """What an endpoint runs on, as its variant states it: known also where no step model is."""

    accelerator: str
    accelerators: int
    """Of one replica: its tensor parallelism."""
    model: str
    role: str
    """prefill, decode or both."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Columns of length n. NaN means unknown and is never read as zero.

    The picker projects its own dispatches onto the state columns, so that they hold for now and not for the last
    scrape.
    """

    endpoints: tuple[str, ...]
    endpoint_count: int
    """The first so many rows are the endpoints, each once."""
    regions: tuple[str | None, ...]
    region_names: tuple[str, ...]
    region_codes: IntColumn
    """Position of each plan's region in `region_names`; -1 where it is unknown."""
    engine_rows: FloatMatrix
    """Row i is `heliotrope.engine.coefficients` of what serves there, shape (n, C); NaN: no step model is known."""
    running: FloatColumn
    """Sequences in the batch."""
    waiting: FloatColumn
    """Requests queued before this one."""
    waiting_tokens: FloatColumn
    """Their uncached prompt tokens."""
    oldest_waiting_seconds: FloatColumn
    """How long the first of them has waited."""
    kv_tokens: FloatColumn
    """Tokens held in the KV cache by the batch."""
    prefill_duty: FloatColumn
    """Share of recent time spent in prefill, in [0, 1)."""
    cached_tokens: FloatColumn
    """Prompt tokens of this request that need no prefill: cached there, or fetched by the plan."""
    quality: FloatColumn
    """Of the model that the endpoint serves, in [0, 1]."""
    price_per_hour: FloatColumn
    base_score: FloatColumn
    """The weighted score of the scorers, higher is better."""
    embodied_grams: FloatColumn
    """Of one replica; NaN where nobody states them. So is its lifetime."""
    embodied_lifetime_seconds: FloatColumn
    region_views: Mapping[str, RegionView]
    hardware_rows: FloatMatrix
    """Row i is `heliotrope.decide.rows.describe` of what endpoint i runs on; shape (n, H)."""
    prefill_tokens_in_flight: FloatColumn
    """Prompt tokens of this picker's own requests there that have not answered yet."""
    decode_tokens_in_flight: FloatColumn
    """Output tokens that this picker's own open requests there were expected to produce."""
    kv_capacity_tokens: FloatColumn
    power_watts: FloatColumn
    """Of all accelerators of the endpoint at the last reading."""
    sm_clock_mhz: FloatColumn
    seconds_since_piece: FloatColumn
    """Since a piece of an answer came from there: tells where in its step the engine is."""
    recent_running: FloatColumn
    """Sequences in the batch, smoothed (`heliotrope.predict.recent_load`)."""
    recent_prompt_tokens_per_second: FloatColumn
    """Prompt tokens that the engine computes for everybody, smoothed likewise."""
    waiting_squared_tokens: FloatColumn
    """Σ n² over the prompts that wait."""
    step_seconds: FloatColumn
    """How long the running step has run (`heliotrope.predict.step_phase`)."""
    step_prefills: FloatColumn
    """1 where it computes prompts, 0 where it decodes."""
    kv_actions: tuple[KvAction, ...]
    kv_sources: tuple[str | None, ...]
    """The endpoint that blocks are pulled from; None where the plan pulls none."""
    transfer_seconds: FloatColumn
    """Before prefill can begin, for blocks that are pulled or reloaded; 0 where none are."""
    transfer_joules: FloatColumn
    """Of the network and of both ends, for the same blocks."""
    cached_deviation_tokens: FloatColumn | None = None
    """One standard deviation of `cached_tokens`; 0 where nothing speaks against the belief. None: nobody says."""
    pairs: "PrefillPairs | None" = None
    """What the last rows are, if some are prefill/decode pairs; such a row has the columns of where it decodes."""
    encoding: "Encoding | None" = None
    """How images may be encoded; None: the request has none."""

    def __len__(self) -> int:
        return len(self.endpoints)

    @property
    def aggregated_count(self) -> int:
        """The first so many rows prefill and decode at one endpoint."""
        return len(self) if self.pairs is None else len(self) - len(self.pairs)

    def prefill_endpoint(self, row: int) -> str:
        """Where the prompt of plan `row` is prefilled."""
        pair = row - self.aggregated_count
        if self.pairs is None or pair < 0:
            return self.endpoints[row]
        return self.pairs.prefillers.endpoints[int(self.pairs.rows[pair])]

    def reused_tokens(self, row: int) -> float:
        """Prompt tokens of plan `row` that nobody computes: cached or fetched where it is prefilled."""
        pair = row - self.aggregated_count
        if self.pairs is None or pair < 0:
            return float(self.cached_tokens[row])
        return float(self.pairs.prefillers.cached_tokens[self.pairs.rows[pair]])

    def prefill_region(self, row: int) -> str | None:
        """The region of the same."""
        pair = row - self.aggregated_count
        if self.pairs is None or pair < 0:
            return self.regions[row]
        return self.pairs.prefillers.regions[int(self.pairs.rows[pair])]


@dataclass(frozen=True, slots=True)
class PrefillPairs:
    """The last rows of candidates, plan by plan: `heliotrope.decide.phases` makes them."""

    prefillers: Candidates
    """The endpoints that may prefill for others, each once and alone."""
    rows: IntColumn
    """Per plan, the row of its prefiller."""
    prefill: FloatMatrix
    """What prefilling this request takes of every prefiller, shape (`phase_kernel.LINES`, prefillers)."""
    tail_seconds: FloatColumn
    """Per plan, from its turn at the decoder to the first token."""
    sender_joules: FloatColumn
    """Per plan, the part of its `transfer_joules` that falls to the prefiller's side."""
    neighbour_tpot_seconds: FloatColumn
    """Of every candidate, pairs last: TPOT of those that decode where it prefills; NaN where nobody does."""
    failure_rate: FloatColumn | None = None
    """Per plan, chance that a request fails at its prefiller; None: nobody compares it."""

    def __len__(self) -> int:
        return len(self.rows)

    def line(self, line: int) -> FloatColumn:
        """A line of `prefill`, per plan."""
        taken: FloatColumn = self.prefill[line][self.rows]
        return taken


def region_index(regions: Sequence[str | None]) -> tuple[tuple[str, ...], IntColumn]:
    """The distinct regions, and the position of each row's among them; -1 for None."""
    codes = {name: code for code, name in enumerate(dict.fromkeys(name for name in regions if name is not None))}
    return tuple(codes), np.array([-1 if name is None else codes[name] for name in regions], dtype=np.intp)
