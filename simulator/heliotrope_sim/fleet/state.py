"""The kernel's state at the start of a run."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from heliotrope.engine.model import EngineModel
from heliotrope_sim.engine.costs import StepCosts
from heliotrope_sim.engine.fixed_point import milliwatts
from heliotrope_sim.fleet import layout
from heliotrope_sim.fleet.layout import NOBODY, Fleet
from heliotrope_sim.fleet.topology import Topology
from heliotrope_sim.fleet.workload import Workload

_EMPTY_LISTS = (
    layout.DECODE_HEAD,
    layout.DECODE_TAIL,
    layout.PREFILL_HEAD,
    layout.PREFILL_TAIL,
    layout.WAIT_HEAD,
    layout.WAIT_TAIL,
    layout.HOLD_HEAD,
    layout.LRU_HEAD,
    layout.LRU_TAIL,
)


class Rows:
    """The step costs of every engine model and clock that a run meets, one row each."""

    def __init__(self) -> None:
        self._index: dict[tuple[EngineModel, int], int] = {}
        self.rates: NDArray[np.float64] = np.zeros((0, layout.RATE_COLUMNS))
        self.charges: NDArray[np.int64] = np.zeros((0, layout.CHARGE_COLUMNS), dtype=np.int64)

    def of(self, model: EngineModel, capacity: int) -> int:
        """The row of a model at its clock with a batch of at most `capacity`, made if need be."""
        key = (model, capacity)
        if key not in self._index:
            self._index[key] = len(self._index)
            self.rates = np.vstack([self.rates, _rates(StepCosts.of(model))])
            self.charges = np.vstack([self.charges, _charges(StepCosts.of(model), model, capacity)])
        return self._index[key]


def _rates(costs: StepCosts) -> list[float]:
    return [
        costs.knee_tokens,
        costs.prefill_seconds_below,
        costs.prefill_seconds_above,
        costs.prefill_seconds_base,
        costs.prefill_seconds_per_request,
        costs.prefill_seconds_per_square,
        *costs.decode_alpha,
        *costs.decode_beta,
    ]


def _charges(costs: StepCosts, model: EngineModel, capacity: int) -> list[int]:
    return [
        costs.prefill_base_picojoules,
        costs.prefill_picojoules_per_token,
        costs.prefill_picojoules_per_square,
        costs.decode_base_picojoules,
        costs.decode_picojoules_per_request,
        costs.decode_picojoules_per_cached_token,
        model.block_size,
        model.kv_capacity_tokens // model.block_size,
        capacity,
        model.max_num_batched_tokens,
    ]


def build(topology: Topology, workload: Workload, rows: Rows, split: bool) -> Fleet:
    """All engines idle, all requests unsent; with `split`, row n + r is the prefill of request r elsewhere."""
    engines = _engines(topology, rows)
    block_size = max(site.model.block_size for site in topology.sites)
    batch = max(site.capacity for site in topology.sites)
    shares = len(workload.block_hashes) > 0
    keys, offsets = _keys(workload, split)
    blocks = int(rows.charges[:, layout.BLOCKS].max()) if shares else 0
    buckets = 1 << max(blocks - 1, 0).bit_length()
    nodes = np.full((len(engines), blocks, layout.NODE_COLUMNS), NOBODY, dtype=np.int32)
    if blocks:
        chain = np.arange(1, blocks + 1, dtype=np.int32)
        chain[-1] = NOBODY
        nodes[:, :, layout.CHAIN] = chain
    return Fleet(
        engines=engines,
        requests=_requests(workload, split),
        rates=rows.rates,
        charges=rows.charges,
        sites=_sites(topology),
        heap=np.zeros((len(engines), batch + 1, 2), dtype=np.int64),
        residues=np.zeros((len(engines), block_size), dtype=np.int64),
        nodes=nodes,
        buckets=np.full((len(engines), buckets if shares else 1), NOBODY, dtype=np.int32),
        hashes=keys,
        held=np.full(len(keys), NOBODY, dtype=np.int32),
        offsets=offsets,
    )


def _engines(topology: Topology, rows: Rows) -> NDArray[np.int64]:
    table = np.zeros((topology.engines, layout.ENGINE_COLUMNS), dtype=np.int64)
    table[:, _EMPTY_LISTS] = NOBODY
    table[:, layout.TAKES] = 1
    first = 0
    for index, site in enumerate(topology.sites):
        block = table[first : first + site.engines]
        row = rows.of(site.model, site.capacity)
        block[:, layout.SITE] = index
        block[:, layout.ROW] = row
        block[:, layout.CLOCK_MHZ] = site.model.clock_mhz
        block[:, layout.FREE_BLOCKS] = rows.charges[row, layout.BLOCKS]
        block[:, layout.IDLE_MILLIWATTS] = milliwatts(site.model.idle_watts)
        if site.prefill_decode is not None:
            of_node = np.arange(site.engines) % site.engines_per_node
            prefills = of_node < site.prefill_decode.prefill_engines
            block[:, layout.ROLE] = np.where(prefills, layout.PREFILLS, layout.DECODES_ONLY)
        first += site.engines
    return table


def _sites(topology: Topology) -> NDArray[np.int64]:
    table = np.zeros((len(topology.sites), layout.SITE_COLUMNS), dtype=np.int64)
    first = 0
    for row, site in zip(table, topology.sites, strict=True):
        row[layout.FIRST_ENGINE] = first
        first += site.engines
        row[layout.END_ENGINE] = first
        row[layout.NODE_ENGINES] = site.engines_per_node
        row[layout.DISPATCH] = site.dispatch
        row[layout.SPLIT] = site.prefill_decode is not None
    return table


def _requests(workload: Workload, split: bool) -> NDArray[np.int64]:
    n = len(workload)
    table = np.zeros((2 * n if split else n, layout.REQUEST_COLUMNS), dtype=np.int64)
    never: Sequence[int] = (layout.QUEUED, layout.FIRST_TOKEN, layout.FINISHED, layout.ENGINE, layout.HOLD_NS)
    table[:, never] = NOBODY
    table[:, layout.SCHEDULED] = NOBODY
    table[:n, layout.PROMPT] = workload.prompt_tokens
    table[:n, layout.OUTPUT] = workload.output_tokens
    if split:
        table[n:, layout.PROMPT] = workload.prompt_tokens
        table[n:, layout.OUTPUT] = 1
    return table


def _keys(workload: Workload, split: bool) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Hashes as small numbers: equal ones for equal hashes."""
    if not len(workload.block_hashes):
        return np.zeros(0, dtype=np.int32), np.zeros(1, dtype=np.int64)
    _, keys = np.unique(workload.block_hashes, return_inverse=True)
    small, offsets = keys.astype(np.int32), np.array(workload.block_offsets)
    if split:
        return np.concatenate([small, small]), np.concatenate([offsets, offsets[1:] + offsets[-1]])
    return small, offsets
