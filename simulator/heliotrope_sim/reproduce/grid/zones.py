"""Where the fleet stands: 19 balancing areas, the part of the country that each lies in, and its PUE.

The areas are the seven that a grid operator of its own runs, and twelve more from every part of the country. They were
chosen before the first run and not changed. The paper's 19 regions are WattTime's; its list is not in our copy.
"""

from dataclasses import dataclass
from enum import StrEnum

from heliotrope.errors import InvalidInputError


class Part(StrEnum):
    """Part of the country: whose day the demand follows."""

    EAST = "east"
    CENTRAL = "central"
    WEST = "west"


COOL, TEMPERATE, WARM, DESERT = 1.08, 1.15, 1.22, 1.32
"""PUE by climate. Assumed: between the lowest and the highest that operators report per site (paper
carbon-slo-tension, §V: 1.08 to 1.32)."""


@dataclass(frozen=True, slots=True)
class Zone:
    """A place with as many engines as every other."""

    name: str
    part: Part
    pue: float


ZONES = (
    Zone("US-CAL-CISO", Part.WEST, TEMPERATE),
    Zone("US-TEX-ERCO", Part.CENTRAL, WARM),
    Zone("US-CENT-SWPP", Part.CENTRAL, TEMPERATE),
    Zone("US-MIDW-MISO", Part.CENTRAL, TEMPERATE),
    Zone("US-MIDA-PJM", Part.EAST, TEMPERATE),
    Zone("US-NY-NYIS", Part.EAST, COOL),
    Zone("US-NE-ISNE", Part.EAST, COOL),
    Zone("US-NW-BPAT", Part.WEST, COOL),
    Zone("US-NW-PACE", Part.WEST, TEMPERATE),
    Zone("US-NW-PACW", Part.WEST, COOL),
    Zone("US-NW-NEVP", Part.WEST, DESERT),
    Zone("US-NW-PSCO", Part.WEST, TEMPERATE),
    Zone("US-SW-AZPS", Part.WEST, DESERT),
    Zone("US-SW-SRP", Part.WEST, DESERT),
    Zone("US-SW-PNM", Part.WEST, DESERT),
    Zone("US-SE-SOCO", Part.EAST, WARM),
    Zone("US-CAR-DUK", Part.EAST, WARM),
    Zone("US-FLA-FPL", Part.EAST, WARM),
    Zone("US-TEN-TVA", Part.CENTRAL, WARM),
)

_FAMILIES: dict[str, tuple[Part, float]] = {
    "CAISO": (Part.WEST, TEMPERATE),
    "LDWP": (Part.WEST, WARM),
    "ERCOT": (Part.CENTRAL, WARM),
    "SPP": (Part.CENTRAL, TEMPERATE),
    "MISO": (Part.CENTRAL, TEMPERATE),
    "PJM": (Part.EAST, TEMPERATE),
    "NYISO": (Part.EAST, COOL),
    "ISONE": (Part.EAST, COOL),
    "BPA": (Part.WEST, COOL),
    "PACE": (Part.WEST, TEMPERATE),
    "PACW": (Part.WEST, COOL),
    "PGE": (Part.WEST, COOL),
    "PSEI": (Part.WEST, COOL),
    "IPCO": (Part.WEST, TEMPERATE),
    "NEVP": (Part.WEST, DESERT),
    "PSCO": (Part.WEST, TEMPERATE),
    "WACM": (Part.WEST, TEMPERATE),
    "AZPS": (Part.WEST, DESERT),
    "SRP": (Part.WEST, DESERT),
    "TEPC": (Part.WEST, DESERT),
    "PNM": (Part.WEST, DESERT),
    "EPE": (Part.WEST, DESERT),
    "SOCO": (Part.EAST, WARM),
    "DUK": (Part.EAST, WARM),
    "CPLE": (Part.EAST, WARM),
    "FPL": (Part.EAST, WARM),
    "FPC": (Part.EAST, WARM),
    "TVA": (Part.CENTRAL, WARM),
    "AECI": (Part.CENTRAL, TEMPERATE),
    "LGEE": (Part.EAST, TEMPERATE),
}
"""By what the name of a WattTime region begins with, up to the first underscore."""


def zone_named(name: str, where: str) -> Zone:
    """The zone of a name: one of `ZONES`, or a WattTime region such as CAISO_NORTH.

    Raises:
        InvalidInputError: if it is neither; `where` says what named it.
    """
    for zone in ZONES:
        if zone.name == name:
            return zone
    family = name.split("_")[0]
    if family not in _FAMILIES:
        known = ", ".join([*_FAMILIES, *(zone.name for zone in ZONES)])
        raise InvalidInputError(where, f"{name[:60]!r} is no known region; its name begins with one of {known}")
    return Zone(name, *_FAMILIES[family])
