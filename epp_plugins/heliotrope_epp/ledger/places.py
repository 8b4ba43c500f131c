"""What a region and a variant cost per unit now, and the signal that prices energy there."""

from dataclasses import dataclass
from typing import NamedTuple

from heliotrope.carbon.footprint import Embodied
from heliotrope.carbon.signal import Freshness, Reading
from heliotrope_epp.datalayer.store import EndpointStore
from heliotrope_epp.ledger.rows import Signal, Site

MAX_VARIANTS = 1_000


class _Hardware(NamedTuple):
    price_per_hour: float | None
    currency: str | None
    embodied: Embodied | None


@dataclass(frozen=True, slots=True)
class Place:
    """Where energy was drawn."""

    site: Site
    reading: Reading | None
    """None unless fresh: energy is not priced with a value that is too old to steer by."""

    @property
    def signal(self) -> Signal | None:
        """The meaning of grams here; None without a price in grams."""
        r = self.reading
        if r is None or self.site.pue is None:
            return None
        return Signal(r.signal_type.value, r.emission_factor.value, r.source, r.estimated)


class Places:
    """Reads the store. What it knows of a variant outlives the variant's last endpoint, for requests that end late."""

    def __init__(self, store: EndpointStore) -> None:
        self._store = store
        self._generation = -1
        self._hardware: dict[str, _Hardware] = {}
        self._sites: dict[tuple[str | None, str | None], Site] = {}

    def of(self, region: str | None, variant: str | None, now_unix_s: float) -> Place:
        """The place as it is known now."""
        if self._generation != self._store.generation:
            self._refresh()
        site = self._sites.get((region, variant))
        if site is None:
            site = self._sites[(region, variant)] = self._site(region, variant)
        view = None if region is None else self._store.regions().get(region)
        fresh = view is not None and view.signal.freshness(now_unix_s) is Freshness.FRESH
        return Place(site, view.signal.reading if view is not None and fresh else None)

    def _refresh(self) -> None:
        self._generation = self._store.generation
        self._sites.clear()
        for state in self._store.states():
            traits = state.traits
            if traits.variant is not None:
                self._hardware.pop(traits.variant, None)
                self._hardware[traits.variant] = _Hardware(traits.price_per_hour, traits.currency, traits.embodied)
        while len(self._hardware) > MAX_VARIANTS:
            del self._hardware[next(iter(self._hardware))]

    def _site(self, region: str | None, variant: str | None) -> Site:
        profile = None if region is None else self._store.world.regions.get(region)
        hardware = self._hardware.get(variant or "", _Hardware(None, None, None))
        embodied = hardware.embodied
        spec = None if profile is None else profile.spec
        price = None if spec is None else spec.electricity_price_per_kwh
        return Site(
            pue=None if spec is None else spec.pue,
            wue_liters_per_kwh=None if spec is None else spec.wue_liters_per_kwh,
            electricity_price_per_kwh=price,
            electricity_currency=None if spec is None or price is None else spec.currency,
            price_per_hour=hardware.price_per_hour,
            currency=hardware.currency,
            embodied_grams_co2e_per_replica=None if embodied is None else embodied.grams_co2e,
            embodied_lifetime_seconds=None if embodied is None else embodied.lifetime_seconds,
        )
