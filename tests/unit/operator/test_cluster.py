"""What is known: news and old news, who wins, and whom a change touches."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.operator import objects
from tests.unit.operator.objects import cluster_of, key_of

from heliotrope_operator.cluster import Cluster
from heliotrope_operator.kinds.pools import pool_key
from heliotrope_operator.kinds.regions import region_key
from heliotrope_operator.kinds.targets import ScaleTarget
from heliotrope_operator.resources import Key, Kind


def names(keys: set[Key]) -> set[str]:
    return {f"{key.kind.value}/{key.name}" for key in keys}


def observe(cluster: Cluster, document: dict[str, Any]) -> set[str]:
    return names(cluster.observe(Kind(document["kind"]), document))


def test_the_same_version_and_older_ones_are_no_news() -> None:
    cluster = cluster_of(objects.region(version=10, pue="1.5"))

    assert observe(cluster, objects.region(version=10)) == set()
    assert observe(cluster, objects.region(version=9, pue="1.1")) == set()
    assert cluster.regions.values()[0].spec.pue == 1.5
    assert observe(cluster, objects.region(version=11, pue="1.2")) == {"RegionProfile/es"}
    assert cluster.regions.values()[0].spec.pue == 1.2


def test_a_new_object_of_the_same_name_is_news_whatever_its_version() -> None:
    cluster = cluster_of(objects.region(version=10))
    again = objects.region(version=3)
    again["metadata"]["uid"] = "another"

    assert observe(cluster, again) == {"RegionProfile/es"}


def test_the_end_of_an_object_does_not_take_its_successor_away() -> None:
    cluster = cluster_of(objects.region())
    again = objects.region(version=5)
    again["metadata"]["uid"] = "another"
    cluster.observe(Kind.REGION_PROFILE, again)

    assert cluster.forget(region_key("es"), "uid-es") == set()
    assert len(cluster.regions) == 1
    assert cluster.forget(region_key("es"), "another") == {region_key("es")}
    assert len(cluster.regions) == 0


@pytest.mark.parametrize(
    ("documents", "winner"),
    [
        ([objects.policy("b", created="2026-01-02"), objects.policy("a", created="2026-01-03")], "b"),
        ([objects.policy("b"), objects.policy("a")], "a"),
        ([objects.policy("a", "other")], None),
        ([objects.policy("a", namespace="elsewhere")], None),
        ([objects.policy("a", "other", "pool")], "a"),
    ],
)
def test_the_oldest_policy_wins_a_pool_and_names_break_ties(
    documents: list[dict[str, Any]], winner: str | None
) -> None:
    found = cluster_of(*documents).winner(pool_key("ns", "pool"))

    assert (None if found is None else found.metadata.name) == winner


def test_the_oldest_variant_owns_a_target_in_any_version_of_its_group() -> None:
    older = objects.variant("b", created="2026-01-01")
    older["spec"]["scaleTargetRef"]["apiVersion"] = "apps/v1beta1"
    cluster = cluster_of(older, objects.variant("a", created="2026-01-02"), objects.variant("c", target="other"))

    owner = cluster.owner(ScaleTarget("ns", "apps", "Deployment", "engine"))

    assert owner is not None
    assert owner.metadata.name == "b"


WORLD = (
    objects.region("es"),
    objects.region("fr"),
    objects.policy("green"),
    objects.policy("rival", created="2026-02-01"),
    objects.policy("far", "far-pool"),
    objects.variant("v", region="es"),
    objects.variant("twin", region="fr", created="2026-02-01"),
    objects.pool("pool"),
    objects.pool("far-pool"),
)
FRESH = {"freshness": "Fresh", "conditions": []}


@pytest.mark.parametrize(
    ("change", "touched"),
    [
        (objects.region("es", version=2, pue="1.3"), {"RegionProfile/es"}),
        (
            objects.region("es", version=2, status=FRESH),
            {"RegionProfile/es", "CarbonPolicy/green", "CarbonPolicy/rival", "CarbonPolicy/far"},
        ),
        (objects.region("new"), {"RegionProfile/new"}),
        (objects.policy("green", version=2, holdoutPercent=5), {"CarbonPolicy/green"}),
        (
            objects.policy("green", version=2, enforcement="Enforce"),
            {"CarbonPolicy/green", "CarbonPolicy/rival", "InferencePool/pool"},
        ),
        (
            objects.policy("green", "far-pool", version=2),
            {
                "CarbonPolicy/green",
                "CarbonPolicy/rival",
                "CarbonPolicy/far",
                "InferencePool/pool",
                "InferencePool/far-pool",
            },
        ),
        (objects.variant("v", version=2, region="es", minReplicas=0), {"WorkloadVariant/v"}),
        (objects.variant("v", version=2, region="es", target="other"), {"WorkloadVariant/v", "WorkloadVariant/twin"}),
        (
            objects.variant("v", version=2, region="fr"),
            {"WorkloadVariant/v", "CarbonPolicy/green", "CarbonPolicy/rival", "CarbonPolicy/far"},
        ),
        (objects.pool("pool", version=2, annotations={"a": "b"}), {"InferencePool/pool"}),
        (
            objects.pool("pool", version=2, labels={"app": "sglang"}),
            {"InferencePool/pool", "CarbonPolicy/green", "CarbonPolicy/rival"},
        ),
    ],
)
def test_a_change_touches_those_that_depend_on_what_changed(change: dict[str, Any], touched: set[str]) -> None:
    assert observe(cluster_of(*WORLD), change) == touched


@pytest.mark.parametrize(
    ("gone", "touched"),
    [
        (
            region_key("es"),
            {"RegionProfile/es", "WorkloadVariant/v", "CarbonPolicy/green", "CarbonPolicy/rival", "CarbonPolicy/far"},
        ),
        (
            key_of(objects.policy("green")),
            {"CarbonPolicy/green", "CarbonPolicy/rival", "InferencePool/pool"},
        ),
        (
            key_of(objects.variant("v")),
            {
                "WorkloadVariant/v",
                "WorkloadVariant/twin",
                "CarbonPolicy/green",
                "CarbonPolicy/rival",
                "CarbonPolicy/far",
            },
        ),
        (pool_key("ns", "far-pool"), {"InferencePool/far-pool", "CarbonPolicy/far"}),
    ],
)
def test_an_end_touches_those_that_depended_on_it(gone: Key, touched: set[str]) -> None:
    cluster = cluster_of(*WORLD)

    assert names(cluster.forget(gone)) == touched
    assert cluster.forget(gone) == set()


def test_an_object_that_cannot_be_read_is_known_as_such_and_claims_nothing() -> None:
    broken = objects.policy("green", version=2)
    broken["spec"]["slo"] = {"ttft": "soon", "tpot": "1s"}
    cluster = cluster_of(*WORLD)

    touched = observe(cluster, broken)

    assert {"CarbonPolicy/green", "CarbonPolicy/rival", "InferencePool/pool"} <= touched
    winner = cluster.winner(pool_key("ns", "pool"))
    assert winner is not None
    assert winner.metadata.name == "rival"
    (unreadable,) = cluster.unreadable.values()
    assert "spec.slo.ttft" in unreadable.problem
    assert observe(cluster, objects.policy("green", version=3)) >= {"CarbonPolicy/green", "CarbonPolicy/rival"}
    assert len(cluster.unreadable) == 0


def test_a_status_that_cannot_be_read_does_not_make_the_object_unreadable() -> None:
    cluster = cluster_of(objects.region(status={"freshness": "Rotten"}))

    (found,) = cluster.regions.values()
    assert found.status is None


@pytest.mark.parametrize(
    ("pool_labels", "selector", "may"),
    [
        ({"app": "vllm"}, {"app": "vllm", "llm-d.ai/role": "decode"}, True),
        ({"app": "vllm"}, {"app": "sglang"}, False),
        ({"app": "vllm"}, {"model": "m"}, True),
    ],
)
def test_a_pool_may_hold_what_it_does_not_contradict(
    pool_labels: dict[str, str], selector: dict[str, str], may: bool
) -> None:
    (pool,) = cluster_of(objects.pool(labels=pool_labels)).pools.values()

    assert pool.may_hold(selector) is may


labels = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy"), min_size=1, max_size=3)


@given(pool_labels=labels, selectors=st.lists(labels, max_size=6))
def test_variants_of_a_pool_are_those_that_it_may_hold(
    pool_labels: dict[str, str], selectors: list[dict[str, str]]
) -> None:
    documents = [objects.variant(f"v{number}", labels=selector) for number, selector in enumerate(selectors)]
    cluster = cluster_of(objects.pool(labels=pool_labels), *documents)
    (pool,) = cluster.pools.values()

    found = {key.name for key in cluster.variants_of(pool_key("ns", "pool"))}

    assert found == {f"v{number}" for number, selector in enumerate(selectors) if pool.may_hold(selector)}
    assert cluster.variants_of(pool_key("elsewhere", "pool")) == set()


def test_an_index_forgets_what_no_value_has() -> None:
    cluster = cluster_of(objects.variant())
    cluster.forget(key_of(objects.variant()))

    assert cluster.variants.distinct("label") == []
    assert cluster.variants.distinct("shape") == []


def test_pools_of_a_variant_follow_every_change() -> None:
    cluster = cluster_of(objects.variant("v", labels={"app": "vllm"}), objects.pool("a"))
    variant = Key(Kind.WORKLOAD_VARIANT, "ns", "v")

    def pools() -> list[str]:
        return [key.name for key in cluster.pools_of(variant)]

    assert pools() == ["a"]
    observe(cluster, objects.pool("b", version=2))
    assert pools() == ["a", "b"]
    observe(cluster, objects.pool("a", version=3, labels={"app": "other"}))
    assert pools() == ["b"]
    observe(cluster, objects.variant("v", labels={"app": "other"}, version=4))
    assert pools() == ["a"]
    cluster.forget(pool_key("ns", "a"))
    assert pools() == []
    cluster.forget(variant)
    assert pools() == []
