"""The columns of candidates that only change with the resources."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import is_

import numpy as np

from heliotrope.decide.candidates import FloatColumn, FloatMatrix, IntColumn, region_index
from heliotrope.engine.coefficients import coefficients, unknown_coefficients
from heliotrope.predict.features import hardware_matrix
from heliotrope_epp.datalayer.endpoint import Endpoint, Traits
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.plugins.interface import Options

NAN = float("nan")


@dataclass(frozen=True, slots=True)
class FixedColumns:
    """Columns of the same names in `Candidates`."""

    endpoints: tuple[str, ...]
    regions: tuple[str | None, ...]
    region_names: tuple[str, ...]
    region_codes: IntColumn
    engine_rows: FloatMatrix
    hardware_rows: FloatMatrix
    quality: FloatColumn
    price_per_hour: FloatColumn
    embodied_grams: FloatColumn
    embodied_lifetime_seconds: FloatColumn

    @classmethod
    def of(cls, endpoints: tuple[str, ...], traits: Sequence[Traits]) -> "FixedColumns":
        """What the resources say of these endpoints; what they leave out is NaN or None."""
        regions = tuple(t.region for t in traits)
        names, codes = region_index(regions)
        engines = {id(t.engine): t.engine for t in traits}
        unknown = unknown_coefficients()
        rows = {i: unknown if engine is None else coefficients(engine) for i, engine in engines.items()}
        return cls(
            endpoints=endpoints,
            regions=regions,
            region_names=names,
            region_codes=codes,
            engine_rows=np.array([rows[id(t.engine)] for t in traits]).reshape(len(traits), len(unknown)),
            hardware_rows=hardware_matrix([t.hardware_row for t in traits]),
            quality=_column([t.quality for t in traits]),
            price_per_hour=_column([t.price_per_hour for t in traits]),
            embodied_grams=_column([None if t.embodied is None else t.embodied.grams_co2e for t in traits]),
            embodied_lifetime_seconds=_column(
                [None if t.embodied is None else t.embodied.lifetime_seconds for t in traits]
            ),
        )


class FixedColumnsCache:
    """The last ones: most decisions are about the same endpoints under the same resources."""

    def __init__(self) -> None:
        self._states: tuple[EndpointState, ...] = ()
        self._endpoints: tuple[Endpoint, ...] = ()
        self._traits: tuple[Traits, ...] = ()
        self._columns = FixedColumns.of((), ())

    def of(self, options: Options) -> FixedColumns:
        """The columns of these options, in their order: the same object as long as nothing has changed."""
        if options.states is self._states:  # the store makes another tuple whenever it applies resources
            return self._columns
        self._states = options.states
        # Both are replaced when the resources change and never altered, so identity tells.
        endpoints = tuple([state.endpoint for state in options.states])
        traits = tuple([state.traits for state in options.states])
        if not (_same(endpoints, self._endpoints) and _same(traits, self._traits)):
            self._endpoints, self._traits = endpoints, traits
            self._columns = FixedColumns.of(tuple([endpoint.key for endpoint in endpoints]), traits)
        return self._columns


def _same(these: tuple[object, ...], those: tuple[object, ...]) -> bool:
    return len(these) == len(those) and all(map(is_, these, those))


def _column(values: Sequence[float | None]) -> FloatColumn:
    return np.array([NAN if value is None else value for value in values], dtype=np.float64)
