"""The generated CRDs follow the conventions of the Kubernetes API, and the committed files are what is generated."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pytest
import yaml
from pydantic import Field, StringConstraints

from heliotrope.api import crd
from heliotrope.api.scalars import DecimalString
from heliotrope.api.struct import Struct
from heliotrope.api.v1alpha1 import KINDS
from heliotrope.api.v1alpha1.common import Definition, Resource

ROOT = Path(__file__).parents[4]
SCHEMAS = {name: crd.schema(kind) for name, kind in KINDS.items()}
NODES = [(f"{name}.{'.'.join(path)}", node) for name, schema in SCHEMAS.items() for path, node in crd.nodes(schema)]


@pytest.mark.parametrize("folder", ["crds", "charts/heliotrope/files/crds"])
def test_the_committed_crds_are_what_the_types_generate(folder: str) -> None:
    committed = {path.name: path.read_text() for path in (ROOT / folder).glob("heliotrope.io_*.yaml")}

    assert committed == crd.render(), f"{folder} is out of date: run `make generate`"


def test_every_field_is_described_and_bounded() -> None:
    for where, schema in NODES:
        top = where.endswith((".apiVersion", ".kind", ".metadata")) and where.count(".") == 1
        assert schema["type"] in {"object", "array", "string", "integer", "boolean"}, where
        assert not {"$ref", "anyOf", "allOf", "oneOf", "nullable", "title"} & schema.keys(), where
        assert where.endswith(("[]", "{}", ".metadata")) or schema["description"], where
        match schema["type"]:
            case "array":
                assert schema["maxItems"] <= 256, where
                assert schema["x-kubernetes-list-type"] in {"atomic", "map", "set"}, where
            case "string":
                assert top or {"maxLength", "enum", "format"} & schema.keys(), where
            case "integer":
                assert schema["minimum"] >= 0 or where.endswith("Priority"), where
                assert schema["format"] == ("int32" if schema["maximum"] < 2**31 else "int64"), where
            case "object":
                assert "additionalProperties" not in schema or "maxProperties" in schema, where


def test_conditions_are_merged_by_type() -> None:
    lists = [schema for where, schema in NODES if where.endswith("conditions")]

    assert len(lists) == 5
    assert all(schema["x-kubernetes-list-map-keys"] == ["type"] for schema in lists)


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.__name__)
def test_every_kind_has_status_columns_category_and_generation(kind: type[Resource]) -> None:
    definition = crd.definition(kind)
    version = definition["spec"]["versions"][0]

    assert version["subresources"] == {"status": {}}
    assert version["additionalPrinterColumns"][-1]["name"] == "Age"
    assert definition["spec"]["names"]["categories"] == ["heliotrope"]
    assert "observedGeneration" in version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]


def test_short_names_and_scopes() -> None:
    found = {
        name: (crd.definition(kind)["spec"]["names"]["shortNames"], crd.definition(kind)["spec"]["scope"])
        for name, kind in KINDS.items()
    }

    assert found == {
        "RegionProfile": (["rp"], "Cluster"),
        "CarbonPolicy": (["cp"], "Namespaced"),
        "WorkloadVariant": (["wv"], "Namespaced"),
        "NodePower": (["np"], "Cluster"),
    }


def test_the_policy_says_so_as_gep_713_wants() -> None:
    labels = crd.definition(KINDS["CarbonPolicy"])["metadata"]["labels"]

    assert labels["gateway.networking.k8s.io/policy"] == "Direct"


def test_columns_read_fields_that_exist() -> None:
    for kind in KINDS.values():
        properties = {path for path, _ in crd.nodes(SCHEMAS[kind.__name__])}
        for column in kind.definition.columns:
            steps = column.path.replace("[0]", ".[]").replace("[?(@", ".[]#").partition("#")[0].strip(".").split(".")
            assert steps[0] == "metadata" or tuple(steps) in properties, f"{kind.__name__}: {column.path}"


def test_yaml_has_no_anchors_and_keeps_units_readable() -> None:
    for text in crd.render().values():
        assert "&id" not in text
        assert yaml.safe_load(text)["apiVersion"] == "apiextensions.k8s.io/v1"
    assert "α" in crd.render()["heliotrope.io_regionprofiles.yaml"]


class _Text(StrEnum):
    A = "a"


@pytest.mark.parametrize(
    ("annotation", "problem"),
    [
        (str, "needs a largest length"),
        (tuple[_Text, ...], "needs a largest length"),
        (int, "needs bounds"),
        (float, "type 'number'"),
        (dict[str, _Text], "needs a largest number of entries"),
        (int | str, "cannot be written"),
        (Any, "type None"),
        (Annotated[int, Field(gt=0, lt=5)], "cannot be written"),
        (Annotated[int, Field(ge=0, le=2**63 - 1)], "float64"),
    ],
)
def test_types_that_a_structural_schema_cannot_bound_stop_the_generator(annotation: Any, problem: str) -> None:
    namespace = {"__annotations__": {"value": annotation}, "__module__": __name__}
    spec = type("Spec", (Struct,), namespace)

    with pytest.raises(TypeError, match=problem):
        crd.schema(_resource(spec))


def test_a_field_without_docstring_stops_the_generator() -> None:
    class Spec(Struct):
        value: Annotated[str, StringConstraints(max_length=3)]

    with pytest.raises(TypeError, match=r"spec\.value needs a docstring"):
        crd.schema(_resource(Spec))


def test_defaults_are_spelled_as_documents_spell_them() -> None:
    class Inner(Struct):
        share: Annotated[float, DecimalString(maximum=1)] = 0.5
        """Share."""
        names: Annotated[tuple[_Text, ...], Field(max_length=3)] = (_Text.A,)
        """Names."""

    class Spec(Struct):
        inner: Inner = Inner(share=0.25)
        """Inner."""
        optional: Inner | None = None
        """Optional."""

    properties = crd.schema(_resource(Spec))["properties"]["spec"]["properties"]

    assert properties["inner"]["default"] == {"share": "0.25", "names": ["a"]}
    assert properties["inner"]["properties"]["share"]["default"] == "0.5"
    assert "default" not in properties["optional"]


def _resource(spec_type: type[Struct]) -> type[Resource]:
    class Sample(Resource):
        definition: ClassVar[Definition] = Definition("samples", "s", namespaced=True, columns=())
        kind: Literal["Sample"] = "Sample"
        spec: spec_type  # type: ignore[valid-type]
        """Spec."""

    return Sample
