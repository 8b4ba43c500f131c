"""Emission factors of ENTSO-E's production types, where a RegionProfile does not give its own.

Lifecycle: medians of IPCC AR5 WG III, Annex III, Table A.III.2 (2014); oil from UK POST note 383 (2011); coal's
for the solid fuels that the table does not have. Direct: the same table's medians of direct emissions; fuels that it
does not have from the default emission factors of the IPCC guidelines of 2006 (kg CO2 per TJ of fuel, volume 2, table
2.2) at 38 % efficiency. Biogenic carbon counts as zero in direct emissions, as in the guidelines.
"""

from collections.abc import Mapping

from heliotrope.carbon.signal import EmissionFactor
from heliotrope.units import g_per_kwh_from_kg_per_tj

_EFFICIENCY = 0.38


def _burnt(kg_per_tj: float) -> float:
    """g/kWh of electricity."""
    return g_per_kwh_from_kg_per_tj(kg_per_tj) / _EFFICIENCY


STORAGE = frozenset({"B10", "B25"})
"""Pumped and other storage gives back what other plants made: it counts in neither sum."""

LIFECYCLE: Mapping[str, float] = {
    "B01": 230.0,  # biomass
    "B02": 820.0,  # lignite
    "B03": 490.0,  # coal-derived gas
    "B04": 490.0,  # gas
    "B05": 820.0,  # hard coal
    "B06": 650.0,  # oil
    "B07": 820.0,  # oil shale
    "B08": 820.0,  # peat
    "B09": 38.0,  # geothermal
    "B11": 24.0,  # run of river
    "B12": 24.0,  # reservoirs
    "B13": 17.0,  # marine
    "B14": 12.0,  # nuclear
    "B16": 48.0,  # solar
    "B18": 12.0,  # wind offshore
    "B19": 11.0,  # wind onshore
}
DIRECT: Mapping[str, float] = {
    "B01": 0.0,
    "B02": _burnt(101_000.0),
    "B03": 370.0,
    "B04": 370.0,
    "B05": 760.0,
    "B06": _burnt(77_400.0),
    "B07": _burnt(107_000.0),
    "B08": _burnt(106_000.0),
    "B09": 0.0,
    "B11": 0.0,
    "B12": 0.0,
    "B13": 0.0,
    "B14": 0.0,
    "B16": 0.0,
    "B18": 0.0,
    "B19": 0.0,
}
"""Types without a factor (B15 other renewable, B17 waste, B20 other) are unknown in both."""


def factors_g_per_kwh(factor: EmissionFactor) -> Mapping[str, float]:
    """The table for one kind of emissions."""
    return LIFECYCLE if factor is EmissionFactor.LIFECYCLE else DIRECT
