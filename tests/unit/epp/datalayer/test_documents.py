"""What files may hold, and what a user reads when they hold something else."""

import json

import pytest
import yaml

from heliotrope.errors import InvalidInputError
from heliotrope_epp.datalayer.documents import read_endpoints, read_resources

REGION = """
apiVersion: heliotrope.io/v1alpha1
kind: RegionProfile
metadata: {name: spain}
spec: {zone: ES, source: {static: {intensityGramsPerKwh: "120"}}}
"""


def test_endpoints_as_llm_d_writes_them() -> None:
    text = """
    endpoints:
      - name: vllm-0
        address: "10.0.0.1"
        port: "8000"
      - name: vllm-0
        namespace: other
        address: "fd00:0::1"
        port: 8001
        labels: {app: llm, heliotrope.io/region: spain}
    """

    first, second = read_endpoints(text.encode())

    assert (first.key, first.host_port, first.labels) == ("default/vllm-0", "10.0.0.1:8000", {})
    assert (second.key, second.host_port) == ("other/vllm-0", "[fd00::1]:8001")
    assert second.labels == {"app": "llm", "heliotrope.io/region": "spain"}


def test_json_is_yaml() -> None:
    document = {"endpoints": [{"name": "a", "address": "10.0.0.1", "port": "8000"}]}

    assert read_endpoints(json.dumps(document).encode())[0].name == "a"


@pytest.mark.parametrize("text", ["endpoints: []", "endpoints:", "# none yet\nendpoints: []\n---\n"])
def test_no_endpoints_is_a_valid_list(text: str) -> None:
    assert read_endpoints(text.encode()) == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": None}, r"endpoints\[1\].name: is required"),
        ({"name": 7}, r"endpoints\[1\].name: is required and must be a string"),
        ({"name": "a"}, r"endpoints\[1\].name: default/a is that of endpoints\[0\] already"),
        ({"address": "10.0.0.1"}, r"endpoints\[1\].address: 10.0.0.1:8000 is that of endpoints\[0\] already"),
        ({"address": "vllm.default.svc"}, r"endpoints\[1\].address: 'vllm.default.svc' is not an IP address"),
        ({"address": None}, r"endpoints\[1\].address: None is not an IP address"),
        ({"port": "0"}, r"""endpoints\[1\].port: '0' is not a port; write for instance "8000" """.strip()),
        ({"port": "65536"}, r"endpoints\[1\].port: '65536'"),
        ({"port": "9" * 5000}, r"endpoints\[1\].port"),
        ({"port": "٣"}, r"endpoints\[1\].port"),
        ({"port": True}, r"endpoints\[1\].port: True"),
        ({"port": None}, r"endpoints\[1\].port: None"),
        (
            {"lables": {}},
            r"endpoints\[1\].lables: unknown field; the fields are address, labels, name, namespace, nodeAddress, port",
        ),
        ({"labels": {"gpu": 8}}, r'endpoints\[1\].labels.gpu: 8 must be a string, in quotes: "8"'),
        ({"labels": ["a"]}, r"endpoints\[1\].labels: must be an object of strings"),
        ({"namespace": 1}, r"endpoints\[1\].namespace: must be a string"),
    ],
)
def test_a_bad_endpoint_is_named(change: dict[str, object], message: str) -> None:
    good = {"name": "a", "address": "10.0.0.1", "port": "8000"}
    other = {"name": "b", "address": "10.0.0.2", "port": "8000"} | change

    with pytest.raises(InvalidInputError, match=message):
        read_endpoints(yaml.safe_dump({"endpoints": [good, other]}).encode())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "one document with the key endpoints"),
        ("- a", "one document with the key endpoints"),
        ("endpoints: []\nports: []", "one document with the key endpoints"),
        ("endpoints: []\n---\nendpoints: []", "one document with the key endpoints"),
        ("endpoints: {}", "endpoints: must be a list"),
        ("endpoints: [7]", r"endpoints\[0\]: must be an object"),
        ("endpoints: [}", "line 1: is not YAML"),
        ("endpoints: 2022-13-45", "is not YAML"),
        ("[" * 100_000, "is not YAML"),
        ("\x00", "is not YAML"),
    ],
)
def test_a_bad_file_of_endpoints(text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        read_endpoints(text.encode())


def test_resources_among_other_documents() -> None:
    text = f"# nothing\n---\nkind: ConfigMap\napiVersion: v1\n---\n{REGION}\n---\n[1, 2]\n---\njust text\n"

    (region,) = read_resources(text.encode())

    assert (region.kind, region.metadata.name) == ("RegionProfile", "spain")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (REGION.replace("zone: ES", "zone: [ES]"), "document 1: spec.zone"),
        (f"a: 1\n---\n{REGION}".replace("zone: ES", "zona: ES"), "document 2: spec.z"),
        (REGION.replace("v1alpha1", "v2"), "document 1: apiVersion: is 'heliotrope.io/v2'"),
        (REGION.replace("RegionProfile", "Region"), "document 1: kind: is 'Region'"),
        (REGION + "  }", "is not YAML"),
        ("a: &a [*a]\n" + REGION.replace("zone: ES", "zone: !!python/name:os.system x"), "is not YAML"),
    ],
)
def test_a_bad_resource_is_named(text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        read_resources(text.encode())


def test_the_node_of_an_endpoint_may_be_named() -> None:
    (endpoint,) = read_endpoints(b'endpoints: [{name: a, address: "10.0.0.1", port: "1", nodeAddress: "10.0.0.7"}]')

    assert (endpoint.node_address, endpoint.pod) == ("10.0.0.7", "a")
    with pytest.raises(InvalidInputError, match=r"endpoints\[0\].nodeAddress: 'node-7' is not an IP address"):
        read_endpoints(b'endpoints: [{name: a, address: "10.0.0.1", port: "1", nodeAddress: node-7}]')
