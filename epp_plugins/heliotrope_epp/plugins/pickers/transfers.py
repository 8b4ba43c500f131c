"""How KV blocks can come to endpoints, and which of them make pairs, kept between decisions."""

from collections.abc import Sequence
from dataclasses import replace

from heliotrope.cache.crowd import Crowd
from heliotrope.cache.links import Links, Place
from heliotrope.cache.plans import KvPool, kv_pool
from heliotrope.decide.candidates import FloatColumn
from heliotrope.decide.phases import PairPool, pair_pool
from heliotrope.engine.model import EngineModel
from heliotrope_epp.datalayer.endpoint import Endpoint, Traits
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.plugins.kv_labels import offload_tier, place_of, takes_part
from heliotrope_epp.plugins.pickers.fixed import FixedColumns


class KvPoolCache:
    """The pool of the last decision's endpoints; most are about the same ones."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._columns: FixedColumns | None = None
        self._pool: KvPool | None = None

    def of(self, states: Sequence[EndpointState], columns: FixedColumns) -> KvPool | None:
        """Of these endpoints, in their order; None where nothing can be fetched by any of them.

        `columns` are their fixed columns: the same object as long as nothing has changed.
        """
        if columns is not self._columns:
            self._columns = columns
            self._pool = self._built([state.endpoint for state in states], [state.traits for state in states])
        return self._pool

    def _built(self, endpoints: Sequence[Endpoint], traits: Sequence[Traits]) -> KvPool | None:
        pulls = [takes_part(endpoint) for endpoint in endpoints]
        tiers = [offload_tier(endpoint) for endpoint in endpoints]
        if sum(pulls) < 2 and not any(tiers):
            return None
        places = [place_of(endpoint, of) for endpoint, of in zip(endpoints, traits, strict=True)]
        return kv_pool(_served(traits), places, pulls, self._links, tiers)


class PairPoolCache:
    """The pairs of the last decision's decode endpoints and prefillers."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._columns: tuple[object, object] | None = None
        self._pool: PairPool | None = None

    def of(
        self,
        decode: Sequence[EndpointState],
        prefill: Sequence[EndpointState],
        columns: tuple[FixedColumns, FixedColumns],
    ) -> PairPool | None:
        """Of these endpoints, in their orders; None where no two of them make a pair.

        `columns` are their fixed columns: the same objects as long as nothing has changed.
        """
        last = self._columns
        if last is None or columns[0] is not last[0] or columns[1] is not last[1]:
            pool = pair_pool(_described(decode), _described(prefill), self._links)
            self._columns, self._pool = columns, pool if pool.possible else None
        return self._pool

    def partners(self, decode: Sequence[EndpointState], prefiller: EndpointState, rows: Sequence[int]) -> list[int]:
        """Of these rows of `decode`, those that make a pair with the prefiller."""
        states = [decode[i] for i in rows]
        planes = pair_pool(_described(states), _described([prefiller]), self._links).planes
        return [i for i, latency in zip(rows, planes[0, :, 0].tolist(), strict=True) if latency == latency]  # NaN: none

    def planes_between(
        self, decode: EndpointState, prefiller: EndpointState, readers: Crowd | None, sources: Crowd | None
    ) -> FloatColumn:
        """What KV takes from the prefiller to the decoder, as in `PairPool`; NaN where they make no pair.

        `readers` and `sources` are the transfers on their way at the one and the other alone.
        """
        pool = pair_pool(_described([decode]), _described([prefiller]), self._links)
        planes: FloatColumn = pool.crowded(readers, sources)[:, 0, 0]
        return planes


def _described(states: Sequence[EndpointState]) -> list[tuple[str, EngineModel | None, Place]]:
    engines = _served([state.traits for state in states])
    return [(s.endpoint.key, e, place_of(s.endpoint, s.traits)) for s, e in zip(states, engines, strict=True)]


def _served(traits: Sequence[Traits]) -> list[EngineModel | None]:
    """Step models under the names of what they serve: another model's KV is of no use, though one profile fits both.

    Endpoints of one profile and one model share one object.
    """
    known: dict[tuple[int, str], EngineModel] = {}
    served: list[EngineModel | None] = []
    for each in traits:
        engine, hardware = each.engine, each.hardware
        if engine is None or hardware is None or hardware.model == engine.model:
            served.append(engine)
        else:
            name = hardware.model
            served.append(known.setdefault((id(engine), name), replace(engine, model=name)))
    return served
