"""Measured links in the configuration, and the pool that a picker keeps of them."""

from dataclasses import replace

import pytest
from tests.unit.epp.plugins.builders import ENGINE, NOW_S, STALE_AFTER_S, state

from heliotrope.cache import kernel
from heliotrope.cache.links import DEFAULT_LINKS, DEFAULT_TIERS, LinkClass, Links, Tier
from heliotrope.cache.plans import KvPool
from heliotrope.decide.candidates import Hardware
from heliotrope_epp.datalayer.endpoint import Traits
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.plugins.options import Options
from heliotrope_epp.plugins.pickers.fixed import FixedColumnsCache
from heliotrope_epp.plugins.pickers.kv_links import CarbonPickerParameters
from heliotrope_epp.plugins.pickers.transfers import KvPoolCache, PairPoolCache

P2P = {"heliotrope.io/kv-transfer": "p2p"}


def links(text: str) -> Links:
    return CarbonPickerParameters.model_validate_json(text).links


def test_without_parameters_the_defaults_hold() -> None:
    assert links("{}") == Links()


def test_what_is_given_replaces_the_default_and_the_rest_stays() -> None:
    given = links('{"kvLinks": {"region": {"bytesPerSecond": 1e10}, "wan": {"usable": false}, "cpu": {}}}')
    assert given.between[LinkClass.REGION] == replace(DEFAULT_LINKS[LinkClass.REGION], bytes_per_second=1e10)
    assert LinkClass.WAN not in given.between
    assert given.tiers == DEFAULT_TIERS
    assert Tier.DISK not in links('{"kvLinks": {"disk": {"usable": false}}}').tiers


@pytest.mark.parametrize(
    "text",
    [
        '{"kvLinks": {"moon": {}}}',
        '{"kvLinks": {"gpu": {}}}',
        '{"kvLinks": {"wan": {"bytesPerSecond": 0}}}',
        '{"kvLinks": {"wan": {"latencySeconds": -1}}}',
        '{"kvLinks": {"wan": {"joules": 1}}}',
        '{"kvLinks": {"wan": {"networkJoulesPerBit": 1e999}}}',
    ],
)
def test_links_that_cannot_be(text: str) -> None:
    with pytest.raises(ValueError, match="validation error"):
        CarbonPickerParameters.model_validate_json(text)


class Pools:
    """The caches as the carbon picker uses them."""

    def __init__(self) -> None:
        self.fixed, self.pools = FixedColumnsCache(), KvPoolCache(Links())

    def of(self, states: list[EndpointState]) -> KvPool | None:
        options = Options.at(states, [0.0] * len(states), NOW_S, STALE_AFTER_S)
        return self.pools.of(options.states, self.fixed.of(options))


def test_the_pool_is_kept_while_the_resources_stay() -> None:
    cache = Pools()
    states = [state("a", region="r", labels=P2P), state("b", region="s", labels=P2P)]
    pool = cache.of(states)
    assert pool is not None
    assert cache.of(states) is pool
    assert pool.links[kernel.LATENCY_SECONDS, 0, 1] == DEFAULT_LINKS[LinkClass.WAN].latency_seconds
    states[1].traits = replace(states[1].traits, region="r")
    moved = cache.of(states)
    assert moved is not None
    assert moved is not pool
    assert moved.links[kernel.LATENCY_SECONDS, 0, 1] == DEFAULT_LINKS[LinkClass.REGION].latency_seconds


def test_there_is_no_pool_where_nothing_can_be_fetched() -> None:
    cache = Pools()
    assert cache.of([state("a"), state("b", labels=P2P)]) is None
    assert cache.of([state("a", labels={"heliotrope.io/kv-offload": "cpu"})]) is not None
    assert cache.of([]) is None


def test_a_pool_that_stays_is_known_without_looking_at_its_endpoints() -> None:
    cache, states = FixedColumnsCache(), (state("a", region="r"), state("b", region="s"))
    first = cache.of(Options.at(states, [0.0, 0.0], NOW_S, STALE_AFTER_S))
    assert cache.of(Options.at(states, [0.0, 0.0], NOW_S + 1.0, STALE_AFTER_S)) is first
    assert cache.of(Options.at(tuple(reversed(states)), [0.0, 0.0], NOW_S, STALE_AFTER_S)).regions == ("s", "r")


def test_models_of_one_profile_do_not_share_kv() -> None:
    def serving(name: str, model: str) -> EndpointState:
        hardware = Hardware("H100", 1, model, "both")
        return state(name, labels=P2P, traits=Traits(region="r", engine=ENGINE, hardware=hardware))

    pool = Pools().of([serving("a", "small"), serving("b", "large"), serving("c", "small")])
    assert pool is not None
    kinds = pool.columns[kernel.KIND]
    assert kinds[0] == kinds[2] != kinds[1]
    pairs = PairPoolCache(Links())
    decode = [serving("a", "small")]
    assert pairs.partners(decode, serving("b", "large"), [0]) == []
    assert pairs.partners(decode, serving("c", "small"), [0]) == [0]
