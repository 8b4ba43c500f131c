from tests.unit.epp.ledger.builders import NOW, reading, store, world

from heliotrope.carbon.signal import CarbonSignal
from heliotrope_epp.datalayer.world import World
from heliotrope_epp.ledger.places import Place, Places
from heliotrope_epp.ledger.rows import Signal, Site


def test_a_place_is_what_region_and_variant_state() -> None:
    place = Places(store()).of("es", "llm/v", NOW)
    assert place.site == Site(1.5, 2.0, 0.1, "EUR", 3.6, "USD", 1_000_000.0, 1e8)
    assert place.signal == Signal("average", "lifecycle", "static", None)


def test_what_nobody_states_is_unknown() -> None:
    places = Places(store())
    assert places.of(None, None, NOW) == Place(Site(), None)
    assert places.of("nowhere", "llm/other", NOW) == Place(Site(), None)


def test_a_stale_signal_prices_nothing() -> None:
    assert Places(store(fresh=False)).of("es", "llm/v", NOW).signal is None


def test_a_variant_is_remembered_after_its_last_endpoint() -> None:
    endpoints = store()
    places = Places(endpoints)
    places.of("es", "llm/v", NOW)
    endpoints.apply(World(regions=endpoints.world.regions))
    assert places.of("es", "llm/v", NOW).site.price_per_hour == 3.6


def test_a_change_of_the_profile_holds_from_then_on() -> None:
    endpoints = store()
    places = Places(endpoints)
    places.of("es", "llm/v", NOW)
    endpoints.apply(world(pue="2"))
    site = places.of("es", "llm/v", NOW).site
    assert (site.pue, site.embodied_grams_co2e_per_replica) == (2.0, None)
    endpoints.set_signals({"es": CarbonSignal(reading(7.0), 3_600.0)})
    found = places.of("es", "llm/v", NOW).reading
    assert found is not None
    assert found.intensity_g_per_kwh == 7.0
