"""The bench of the operator: its cluster is one that the operator can read, and its pickers speak its language."""

import json
import urllib.request
from collections import Counter

import pytest
from bench import operator_scale
from bench.operator_scale import FakePickers, Size, documents, settle
from tests.support.controlplane import free_ports

from heliotrope.api.v1alpha1 import CarbonPolicy, RegionProfile, WorkloadVariant
from heliotrope_operator.planning import page
from heliotrope_operator.planning.pickers import addresses_of

TINY = Size(
    regions=3, pools=2, variants_per_pool=2, pods_per_variant=3, nodes=4, settle_s=0.0, steady_s=0.0, reactions=0
)
PORTS = [9001, 9002]


def test_there_is_as_much_of_everything_as_is_said_and_each_under_its_own_path() -> None:
    objects = list(documents(TINY, "10.0.0.1", PORTS))
    assert Counter(document["kind"] for _, document in objects) == {
        "Namespace": operator_scale.NAMESPACES,
        "Node": 4,
        "RegionProfile": 3,
        "InferencePool": 2,
        "EndpointSlice": 2,
        "CarbonPolicy": 2,
        "Deployment": 4,
        "WorkloadVariant": 4,
        "Pod": 12,
    }
    assert len({path for path, _ in objects}) == len(objects)
    assert all(path.endswith(document["metadata"]["name"]) for path, document in objects)


def test_our_own_objects_are_valid_and_belong_together() -> None:
    objects = [document for _, document in documents(TINY, "10.0.0.1", PORTS)]

    def of(kind: str) -> list[dict[str, object]]:
        return [each for each in objects if each["kind"] == kind]

    regions = [RegionProfile.model_validate(each) for each in of("RegionProfile")]
    policies = [CarbonPolicy.model_validate(each) for each in of("CarbonPolicy")]
    variants = [WorkloadVariant.model_validate(each) for each in of("WorkloadVariant")]
    pools = {each["metadata"]["name"] for each in of("InferencePool")}  # type: ignore[index]
    assert {ref.name for policy in policies for ref in policy.spec.target_refs} == pools
    names = {region.metadata.name for region in regions}
    assert {variant.spec.region_ref.name for variant in variants if variant.spec.region_ref} <= names
    for variant in variants:
        wanted = variant.spec.endpoint_selector.match_labels
        selected = [pod for pod in of("Pod") if wanted.items() <= pod["metadata"]["labels"].items()]  # type: ignore[index]
        assert len(selected) == TINY.pods_per_variant


def test_pickers_are_found_and_tell_what_the_operator_reads() -> None:
    ports = free_ports(2)
    slices = [document for _, document in documents(TINY, "127.0.0.1", ports) if document["kind"] == "EndpointSlice"]
    with FakePickers(TINY, "127.0.0.1", ports):
        for number, each in enumerate(slices):
            (address,) = addresses_of(each)
            with urllib.request.urlopen(f"http://{address}{page.PATH}", timeout=10) as answer:
                body = answer.read()
            told = page.read(body, namespace=f"llm-{number}", pool=f"pool-{number}")
            assert set(told.models) == {f"model-{number}"}
            assert len(told.engines) == TINY.variants_per_pool * TINY.pods_per_variant
            assert json.loads(body)["models"][0]["held"] == 0


class Writing:
    """An operator whose count of writes goes up by so many between looks."""

    def __init__(self, *grown: float) -> None:
        self._totals = [sum(grown[:index]) for index in range(len(grown) + 1)]
        self.looks = 0

    def metric(self, name: str, labels: dict[str, str]) -> float:
        assert labels == {"method": "PATCH"}
        assert name == "heliotrope_kubernetes_requests_total"
        self.looks += 1
        return self._totals[min(self.looks, len(self._totals)) - 1]


@pytest.mark.parametrize(("grown", "looks"), [((0.0,), 2), ((500.0, 30.0, 0.0, 0.0), 4)])
def test_steady_begins_when_writing_has_ended(
    grown: tuple[float, ...], looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operator_scale, "QUIET_S", 0.0)
    operator = Writing(*grown)
    settle(operator, TINY)  # type: ignore[arg-type]
    assert operator.looks == looks


def test_what_never_settles_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(operator_scale, "QUIET_S", 0.0)
    monkeypatch.setattr(operator_scale, "LONGEST_SETTLE_S", 0.0)
    settle(Writing(500.0, 500.0), TINY)  # type: ignore[arg-type]
    assert "no steady state" in capsys.readouterr().err
