"""What is known of each plan's region, as columns."""

import numpy as np

from heliotrope.decide.candidates import Candidates, FloatColumn, FloatMatrix

NAN = float("nan")


class RegionColumns:
    """One value per plan."""

    def __init__(self, candidates: Candidates, known: "RegionColumns | None" = None) -> None:
        """`known` are the columns of other plans of the same decision; what they know is not looked up again."""
        self._names = candidates.region_names
        self._views = [candidates.region_views.get(name) for name in self._names]
        self._codes = candidates.region_codes
        self._expected: dict[str, float] = {} if known is None else known._expected

    @property
    def rtt_seconds(self) -> FloatColumn:
        """0 where the region is unknown."""
        return self._column([0.0 if view is None else view.rtt_seconds for view in self._views], 0.0)

    def pue(self) -> FloatColumn:
        """NaN where the region is unknown; so for the next two."""
        return self._column([NAN if view is None else view.pue for view in self._views])

    def wue_l_per_kwh(self) -> FloatColumn:
        """See `pue`."""
        return self._column([NAN if view is None else view.wue_l_per_kwh for view in self._views])

    def intensity_g_per_kwh(self, now_unix_s: float, duration_s: float) -> FloatColumn:
        """Expected over the coming `duration_s`; NaN unless the signal is fresh. Time and duration are a decision's."""
        return self._column(self._intensities(now_unix_s, duration_s))

    def table(self, now_unix_s: float, duration_s: float) -> FloatMatrix:
        """Intensity, PUE and WUE of each region and of the unknown one, shape (3, regions + 1); see `pue` and above."""
        lines = (
            [*self._intensities(now_unix_s, duration_s), NAN],
            [*[NAN if view is None else view.pue for view in self._views], NAN],
            [*[NAN if view is None else view.wue_l_per_kwh for view in self._views], NAN],
        )
        return np.array(lines, dtype=np.float64)

    def _intensities(self, now_unix_s: float, duration_s: float) -> list[float]:
        expected = self._expected
        for name, view in zip(self._names, self._views, strict=True):
            if name not in expected:
                value = None if view is None else view.signal.expected_g_per_kwh(now_unix_s, duration_s)
                expected[name] = NAN if value is None else value
        return [expected[name] for name in self._names]

    def _column(self, values: list[float], unknown: float = NAN) -> FloatColumn:
        # Code -1 takes the last one.
        column: FloatColumn = np.array([*values, unknown])[self._codes]
        return column
