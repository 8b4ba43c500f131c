"""What resources mean for endpoints."""

import itertools
from typing import Any

import pytest
from tests.support.resource_documents import workload_variant
from tests.unit.epp.datalayer.objects import endpoint, policy, region, variant

from heliotrope.api.documents import parse
from heliotrope.api.v1alpha1 import WorkloadVariant
from heliotrope.decide.candidates import Embodied
from heliotrope.engine import profiles
from heliotrope_epp.datalayer.kubernetes.source import _typed
from heliotrope_epp.datalayer.resources import PoolRef, Resources
from heliotrope_epp.datalayer.world import effective_policy, resolve

PROFILES = {name: profiles.load(name) for name in profiles.available()}
POOL = PoolRef("llm", "pool")


def test_an_endpoint_without_any_resource_is_known_by_nothing() -> None:
    world = resolve(Resources(endpoints=(endpoint("a"),)), POOL, PROFILES)

    (traits,) = world.traits.values()
    assert (traits.variant, traits.region, traits.engine, traits.quality) == (None, None, None, None)
    assert (traits.price_per_hour, traits.embodied) == (None, None)
    assert (world.policy, world.problems, world.conflicts) == (None, (), ())


def test_a_variant_gives_its_endpoints_what_it_states() -> None:
    big = variant(
        "big",
        regionRef={"name": "spain"},
        engine={"profile": "llama-3.1-8b-h100"},
        quality="0.7",
        pricePerHour="2.5",
        embodiedCarbon={"gramsCo2e": 310_000, "lifetime": "10h"},
    )
    resources = Resources(
        endpoints=(endpoint("a", {"v": "big"}), endpoint("bb", {"v": "small"})),
        variants=(big,),
        regions=(region("spain"),),
    )

    world = resolve(resources, POOL, PROFILES)

    traits = world.traits["llm/a"]
    assert traits.variant == "llm/big"
    assert traits.region == "spain"
    assert traits.engine == PROFILES["llama-3.1-8b-h100"]
    assert (traits.quality, traits.price_per_hour) == (0.7, 2.5)
    assert traits.embodied == Embodied(grams_co2e=310_000.0, lifetime_seconds=36_000.0)
    assert world.traits["llm/bb"].variant is None
    assert world.problems == ()


def test_a_variant_claims_only_its_own_namespace() -> None:
    elsewhere = variant("v", namespace="other", select={"v": "x"})
    default = variant("w", namespace=None, select={"v": "x"})

    world = resolve(Resources(endpoints=(endpoint("a", {"v": "x"}),), variants=(elsewhere, default)), POOL, PROFILES)

    assert world.traits["llm/a"].variant is None


def test_where_variants_overlap_the_first_by_name_holds_and_it_is_said() -> None:
    both = tuple(variant(name, select={"v": "x"}) for name in ("zeta", "alpha"))

    world = resolve(
        Resources(endpoints=(endpoint("a", {"v": "x"}), endpoint("bb", {"v": "x"})), variants=both), POOL, PROFILES
    )

    assert {traits.variant for traits in world.traits.values()} == {"llm/alpha"}
    assert world.problems == ("WorkloadVariants llm/alpha, llm/zeta select the same endpoints; llm/alpha holds",)


LABEL = {"heliotrope.io/region": "norway"}


@pytest.mark.parametrize(
    ("ref", "labels", "node", "expected"),
    [
        ("spain", LABEL, "eu-1", "spain"),
        (None, LABEL, "eu-1", "norway"),
        (None, {}, "eu-1", "brazil"),
        (None, {}, "mars", None),
        (None, {}, None, None),
    ],
)
def test_the_region_is_the_variants_else_the_labels_else_the_nodes(
    ref: str | None, labels: dict[str, str], node: str | None, expected: str | None
) -> None:
    spec: dict[str, Any] = {} if ref is None else {"regionRef": {"name": ref}}
    resources = Resources(
        endpoints=(endpoint("a", {"v": "x"} | labels, node_region=node),),
        variants=(variant("v", select={"v": "x"}, **spec),),
        regions=(region("spain"), region("norway"), region("brazil", topologyRegions=["eu-1", "eu-2"])),
    )

    world = resolve(resources, POOL, PROFILES)

    assert world.traits["llm/a"].region == expected
    assert world.problems == ()


def test_regions_that_do_not_exist_are_named_and_kept() -> None:
    resources = Resources(
        endpoints=(endpoint("a", {"v": "x"}), endpoint("bb", LABEL)),
        variants=(variant("v", select={"v": "x"}, regionRef={"name": "spain"}),),
    )

    world = resolve(resources, POOL, PROFILES)

    assert (world.traits["llm/a"].region, world.traits["llm/bb"].region) == ("spain", "norway")
    assert world.problems == (
        "WorkloadVariant llm/v: spec.regionRef.name: there is no RegionProfile 'spain'",
        "endpoint llm/bb: label heliotrope.io/region: there is no RegionProfile 'norway'",
    )


def test_a_node_region_that_two_profiles_claim_goes_to_the_first_by_name() -> None:
    resources = Resources(
        endpoints=(endpoint("a", node_region="eu"),),
        regions=(region("b", topologyRegions=["eu"]), region("a", topologyRegions=["eu"])),
    )

    world = resolve(resources, POOL, PROFILES)

    assert world.traits["llm/a"].region == "a"
    assert world.problems == ("RegionProfile b: spec.topologyRegions: 'eu' is already claimed by 'a', which holds",)


def test_an_engine_profile_that_does_not_ship_is_a_problem_and_the_engine_unknown() -> None:
    resources = Resources(
        endpoints=(endpoint("a", {"v": "v"}),),
        variants=(variant("v", engine={"profile": "tpu"}, quality="0.5"),),
        problems=("of the source",),
    )

    world = resolve(resources, POOL, PROFILES)

    assert (world.traits["llm/a"].engine, world.traits["llm/a"].quality) == (None, 0.5)
    assert world.problems[0] == "of the source"
    assert "WorkloadVariant llm/v: spec.engine.profile: no engine profile 'tpu'" in world.problems[1]


def test_prices_in_two_currencies_are_not_compared() -> None:
    variants = (variant("a", pricePerHour="2", currency="EUR"), variant("b", pricePerHour="2"), variant("c"))
    endpoints = (endpoint("a", {"v": "a"}), endpoint("bb", {"v": "b"}))

    mixed = resolve(Resources(endpoints=endpoints, variants=variants), POOL, PROFILES)
    single = resolve(Resources(endpoints=endpoints, variants=variants[1:]), POOL, PROFILES)

    assert [traits.price_per_hour for traits in mixed.traits.values()] == [None, None]
    assert mixed.problems == ("WorkloadVariants have prices in EUR, USD: cost is unknown everywhere",)
    assert [traits.price_per_hour for traits in single.traits.values()] == [None, 2.0]
    assert [traits.currency is None for traits in single.traits.values()] == [True, False]


OLD, NEW = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def test_the_oldest_policy_on_the_pool_holds_whatever_the_order() -> None:
    policies = (
        policy("aaa", created=NEW),
        policy("zzz", created=OLD),
        policy("other-pool", pool="another", created="2020-01-01T00:00:00Z"),
        policy("other-namespace", namespace="else", created="2020-01-01T00:00:00Z"),
    )
    for order in itertools.permutations(policies):
        world = resolve(Resources(policies=order), POOL, PROFILES)

        assert world.policy is not None
        assert world.policy.name == "llm/zzz"
        assert world.policy_resource is policies[1]
        assert world.conflicts == ("llm/aaa",)


def test_of_policies_equally_old_the_first_by_name_holds() -> None:
    holding, losers = effective_policy(
        [policy("b", created=OLD), policy("c", created=OLD), policy("a", created=OLD)], POOL
    )

    assert holding is not None
    assert holding.metadata.name == "a"
    assert [each.metadata.name for each in losers] == ["b", "c"]


def test_a_policy_may_name_several_pools() -> None:
    spread = policy("a", targetRefs=[{"name": "first"}, {"name": "pool"}])

    assert effective_policy([spread], POOL)[0] is spread


def test_a_folder_is_a_pool_of_its_own_and_goes_by_namespace_and_name() -> None:
    policies = [policy("b", namespace="x", pool="p"), policy("c", namespace=None, pool="q"), policy("a", namespace="x")]

    world = resolve(Resources(policies=tuple(policies)), None, PROFILES)

    assert world.policy is not None
    assert world.policy.name == "default/c"
    assert world.conflicts == ("x/a", "x/b")


def test_what_this_version_cannot_honour_is_said() -> None:
    response = {"prometheus": {"url": "http://p:9090", "query": "limit"}, "weights": {"energy": "1"}}
    asking = policy("a", demandResponse=response)
    engines = [endpoint("a" * (i + 1), {"llm-d.ai/engine-type": kind}) for i, kind in enumerate(("sglang", "triton"))]

    world = resolve(Resources(endpoints=tuple(engines), policies=(asking,)), POOL, PROFILES)

    assert world.problems == (
        (
            "CarbonPolicy llm/a: spec.demandResponse: a source is asked by the operator, in a cluster; without one "
            "only planned events are answered, so its weights or objective never hold"
        ),
        "endpoint llm/aa: label llm-d.ai/engine-type: 'triton' is read as vllm",
    )


def test_equal_engines_of_several_variants_are_one_object() -> None:
    names, engine = ("one", "second"), {"profile": "llama-3.1-8b-h100", "maxNumSeqs": 16}
    resources = Resources(
        endpoints=tuple(endpoint(name, {"v": name}) for name in names),
        variants=tuple(variant(name, engine=engine) for name in names),
    )
    traits = resolve(resources, None, PROFILES).traits
    first, second = (traits[f"llm/{name}"].engine for name in names)
    assert first is not None
    assert first.max_num_seqs == 16
    assert first is second


def test_priorities_and_power_limits_reach_decisions() -> None:
    document = workload_variant()
    document["spec"] |= {"endpointSelector": {"matchLabels": {"app": "llama"}}}
    document["metadata"]["namespace"] = "llm"
    document["status"] = {"chosenPower": [{"role": "both", "watts": 450}]}
    stated = parse(document)
    assert isinstance(stated, WorkloadVariant)
    resources = Resources(endpoints=(endpoint("a", {"app": "llama"}),), variants=(stated,), priorities={"nightly": -5})

    world = resolve(resources, POOL, PROFILES)

    assert world.priorities == {"nightly": -5}
    assert world.traits["llm/a"].power_limit_watts == 450.0


def test_of_a_variants_status_only_the_chosen_power_is_followed() -> None:
    document = workload_variant()
    document["status"] = {"desiredReplicas": 3, "chosenPower": [{"role": "both", "watts": 450}]}
    typed = _typed(document, WorkloadVariant)
    assert typed.status is not None
    assert (typed.status.desired_replicas, typed.status.chosen_power[0].watts) == (None, 450)
    document["status"] = {"desiredReplicas": 3}
    assert _typed(document, WorkloadVariant).status is None


def test_models_without_the_namespaces_grant_are_withheld_and_reported() -> None:
    models = {"enabled": True, "groups": [{"name": "m", "members": [{"model": "m"}, {"model": "small"}]}]}
    attached = policy("green", models=models)
    granted = resolve(Resources(policies=(attached,)), None, PROFILES)
    assert granted.policy is not None
    assert granted.policy.models is not None
    assert (granted.policy.models.withheld, granted.problems) == (None, ())

    withheld = resolve(Resources(policies=(attached,), downgrades_withheld_because="no label"), None, PROFILES)
    assert withheld.policy is not None
    assert withheld.policy.models is not None
    assert withheld.policy.models.withheld == "no label"
    assert withheld.problems == ("CarbonPolicy llm/green: spec.models: NotGranted: no label",)


def test_a_policy_without_models_needs_no_grant() -> None:
    plain = resolve(Resources(policies=(policy("green"),), downgrades_withheld_because="no label"), None, PROFILES)
    assert plain.problems == ()
