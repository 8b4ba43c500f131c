"""What a user of kubectl sees: examples, defaults, unknown fields, explanations, columns, status."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from tests.support.controlplane import Cluster, CommandError
from tests.support.resource_documents import REMOVED, Document, changed, full_documents, region_profile

from heliotrope.api import crd
from heliotrope.api.documents import parse
from heliotrope.api.v1alpha1 import KINDS

pytestmark = pytest.mark.controlplane

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))
MINIMAL: dict[str, Document] = {
    "RegionProfile": {"zone": "ES", "source": {"static": {"intensityGramsPerKwh": "0"}}},
    "CarbonPolicy": {
        "targetRefs": [{"name": "llama"}],
        "slo": {"ttft": "2s", "tpot": "80ms"},
        "autoscaling": {"activation": {}},
        "power": {"budget": {"watts": 1000}},
        "demandResponse": {"http": {"url": "https://dr.example.org"}},
        "deferral": {},
    },
    "WorkloadVariant": {
        "model": "llama",
        "endpointSelector": {"matchLabels": {"app": "llama"}},
        "accelerator": {"type": "H100"},
        "engine": {"profile": "llama-3.1-8b-h100"},
        "embodiedCarbon": {"gramsCo2e": 1},
    },
    "NodePower": {},
}


@pytest.fixture
def created(api: httpx.Client, namespace: str, unique_name: Callable[[str], str]) -> Iterator[Callable[..., Document]]:
    """Creates objects and removes the cluster-scoped ones afterwards."""
    paths: list[str] = []

    def create(kind: str, spec: Document) -> Document:
        definition = KINDS[kind].definition
        scope = f"namespaces/{namespace}/" if definition.namespaced else ""
        collection = f"/apis/heliotrope.io/v1alpha1/{scope}{definition.plural}"
        body = {"apiVersion": "heliotrope.io/v1alpha1", "kind": kind, "metadata": {"name": unique_name("made")}}
        answer = api.post(collection, json=body | {"spec": spec}).raise_for_status().json()
        paths.append(f"{collection}/{answer['metadata']['name']}")
        return dict(answer)

    yield create
    for path in paths:
        api.delete(path).raise_for_status()


def test_there_are_examples_of_every_kind() -> None:
    kinds = {document["kind"] for path in EXAMPLES for document in yaml.safe_load_all(path.read_text())}

    assert kinds == set(KINDS)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_applied_and_reads_the_same_in_python(path: Path, control_plane: Cluster, namespace: str) -> None:
    control_plane.kubectl("apply", "--server-side", "--validate=strict", "-n", namespace, "-f", str(path))

    for document in yaml.safe_load_all(path.read_text()):
        served = control_plane.get(document["kind"], document["metadata"]["name"], "-n", namespace)
        assert parse(served).spec == parse(document).spec
    control_plane.kubectl("delete", "-n", namespace, "-f", str(path))


@pytest.mark.parametrize("kind", KINDS)
def test_the_api_server_fills_in_the_defaults_that_python_fills_in(kind: str, created: Callable[..., Document]) -> None:
    served = created(kind, MINIMAL[kind])

    written = parse({**served, "spec": MINIMAL[kind]}).to_document()
    assert served["spec"] == written["spec"]
    assert parse(served).to_document()["spec"] == served["spec"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_object_is_stored_as_it_is(kind: str, created: Callable[..., Document], api: httpx.Client) -> None:
    document = full_documents()[kind][-1]
    served = created(kind, document["spec"])
    assert served["spec"] == document["spec"]

    path = _path(served)
    answer = api.put(f"{path}/status", json=served | {"status": document["status"]}).raise_for_status().json()

    assert (answer["spec"], answer["status"]) == (document["spec"], document["status"])
    assert parse(answer).to_document()["status"] == document["status"]


def test_an_update_of_the_object_leaves_its_status_alone(created: Callable[..., Document], api: httpx.Client) -> None:
    document = region_profile()
    served = created("RegionProfile", document["spec"])
    served = api.put(f"{_path(served)}/status", json=served | {"status": document["status"]}).raise_for_status().json()

    patch = {"spec": {"pue": "1.3"}, "status": {"freshness": "Stale"}}
    headers = {"Content-Type": "application/merge-patch+json"}
    answer = api.patch(_path(served), content=json.dumps(patch), headers=headers).raise_for_status().json()

    assert answer["spec"]["pue"] == "1.3"
    assert answer["status"]["freshness"] == "Fresh"
    assert answer["metadata"]["generation"] == served["metadata"]["generation"] + 1


def test_unknown_fields_are_refused_by_kubectl_and_pruned_otherwise(
    control_plane: Cluster, created: Callable[..., Document], unique_name: Callable[[str], str]
) -> None:
    spec = changed({"spec": MINIMAL["RegionProfile"]}, {"spec.curtailment": "1", "spec.source.static.unit": "g"})[
        "spec"
    ]

    served = created("RegionProfile", spec)
    assert "curtailment" not in served["spec"]
    assert served["spec"]["source"]["static"] == {"intensityGramsPerKwh": "0"}

    document = region_profile() | {"metadata": {"name": unique_name("strict")}, "spec": spec}
    with pytest.raises(CommandError, match=r'unknown field "spec\.curtailment"'):
        control_plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(document))


def test_a_user_reads_which_field_breaks_which_rule(control_plane: Cluster) -> None:
    document = changed(region_profile(), {"status": REMOVED, "spec.pue": "0.9", "spec.staleAfter": "1m"})

    output = control_plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(document), check=False)

    assert re.search(r"spec\.pue: Invalid value: .*: must be between 1 and 5$", output, re.MULTILINE)
    assert re.search(r"spec\.staleAfter: .*: staleAfter must be at least pollInterval, or every value", output)


def test_two_appliers_share_lists_that_are_merged_by_key(
    control_plane: Cluster, created: Callable[..., Document]
) -> None:
    served = created("RegionProfile", {**MINIMAL["RegionProfile"]})
    name = served["metadata"]["name"]

    for manager, region in (("first", "no"), ("second", "us")):
        times = [{"region": region, "milliseconds": 10}]
        document = region_profile() | {"metadata": {"name": name}, "spec": {"roundTripTimes": times}}
        del document["status"]
        arguments = ["apply", "--server-side", f"--field-manager={manager}", "--force-conflicts", "-f", "-"]
        document["spec"] |= MINIMAL["RegionProfile"]
        control_plane.kubectl(*arguments, stdin=yaml.safe_dump(document))

    regions = {each["region"] for each in control_plane.get("rp", name)["spec"]["roundTripTimes"]}
    assert regions == {"no", "us"}


@pytest.mark.parametrize("kind", KINDS)
def test_kubectl_explains_every_field(kind: str, control_plane: Cluster) -> None:
    text = control_plane.kubectl("explain", KINDS[kind].definition.plural, "--recursive")
    for path, _ in crd.nodes(crd.schema(KINDS[kind])):
        if path and path[-1] not in {"[]", "{}"}:
            assert re.search(rf"^\s+{path[-1]}\s+<", text, re.MULTILINE), path


def test_an_explanation_tells_meaning_unit_default_and_choices(control_plane: Cluster) -> None:
    assert re.search(
        r"FIELD: pue <string>.*facility energy per IT energy.*from 1 to 5",
        control_plane.kubectl("explain", "rp.spec.pue"),
        re.DOTALL,
    )
    assert re.search(r"ENUM:\s+Advise\s+Enforce\s", control_plane.kubectl("explain", "cp.spec.enforcement"))
    assert "SM clock in MHz" in control_plane.kubectl("explain", "wv.spec.energyProfile.smClockMhz")
    assert "Lease `heliotrope-power`" in " ".join(control_plane.kubectl("explain", "np.spec").split())


COLUMNS: dict[str, list[str]] = {
    "RegionProfile": ["NAME", "ZONE", "INTENSITY", "FRESHNESS", "SIGNAL", "MEASURED", "AGE"],
    "CarbonPolicy": ["NAME", "POOL", "MODE", "TTFT", "TPOT", "ENFORCEMENT", "ACCEPTED", "REASON", "AGE"],
    "WorkloadVariant": [
        *("NAME", "MODEL", "ROLE", "REGION", "ACCELERATOR", "DESIRED", "CURRENT", "ACTIVE", "RESOLVED", "AGE"),
    ],
    "NodePower": ["NAME", "ENFORCEMENT", "GPUS", "MANAGED", "APPLIED", "REASON", "LEASE", "SEEN", "AGE"],
}
SHOWN: dict[str, list[str]] = {
    "RegionProfile": ["ES", "0", "Fresh", "average"],
    "CarbonPolicy": ["llama", "Weighted", "2s", "80ms", "Enforce", "True", "Accepted"],
    "WorkloadVariant": ["meta-llama/Llama-3.1-8B-Instruct", "both", "es", "H100-SXM-80GB", "4", "3", "2", "True"],
    "NodePower": ["Enforce", "2", "1", "True", "Accepted"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_columns_show_what_matters(
    kind: str, control_plane: Cluster, created: Callable[..., Document], api: httpx.Client, namespace: str
) -> None:
    document = full_documents()[kind][0]
    served = created(kind, document["spec"])
    api.put(f"{_path(served)}/status", json=served | {"status": document["status"]}).raise_for_status()
    short, name = KINDS[kind].definition.short_name, served["metadata"]["name"]

    header, row = control_plane.kubectl("get", short, name, "-n", namespace).splitlines()

    assert header.split() == COLUMNS[kind]
    assert row.split()[1 : len(SHOWN[kind]) + 1] == SHOWN[kind]


def test_one_command_lists_everything(control_plane: Cluster, created: Callable[..., Document], namespace: str) -> None:
    made = {created(kind, spec)["metadata"]["name"] for kind, spec in MINIMAL.items()}

    listed = control_plane.kubectl("get", "heliotrope", "-n", namespace, "-o", "name")

    assert made <= {line.rpartition("/")[2] for line in listed.split()}


def _path(served: dict[str, Any]) -> str:
    definition = KINDS[served["kind"]].definition
    scope = f"namespaces/{served['metadata']['namespace']}/" if definition.namespaced else ""
    return f"/apis/heliotrope.io/v1alpha1/{scope}{definition.plural}/{served['metadata']['name']}"
