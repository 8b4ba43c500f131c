"""Who owns which field: read from managedFields, taken out, and given to heirs."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope.errors import InvalidInputError
from heliotrope_operator.actuation import managed
from heliotrope_operator.actuation.managed import Owner
from heliotrope_operator.actuation.original import Original, read

REPLICAS = managed.path_of("spec.replicas")


def entry(
    manager: str, fields: dict[str, Any], operation: str = "Update", subresource: str | None = None
) -> dict[str, Any]:
    found = {"manager": manager, "operation": operation, "fieldsV1": fields, "time": "2026-01-01T00:00:00Z"}
    return found if subresource is None else found | {"subresource": subresource}


OURS = entry("heliotrope-operator", {"f:spec": {"f:replicas": {}}}, "Apply", "scale")
NOTE = entry("heliotrope-operator", {"f:metadata": {"f:annotations": {"f:heliotrope.io/original": {}}}}, "Apply")
KUBECTL = entry("kubectl", {"f:spec": {"f:selector": {}}}, "Apply")


def test_owners_of_a_field_are_those_who_set_it() -> None:
    whole = entry("helm", {"f:spec": {"f:replicas": {}, "f:template": {}}})

    assert managed.owners([OURS, NOTE, KUBECTL, whole], REPLICAS) == (
        Owner("heliotrope-operator", "Apply", "scale"),
        Owner("helm", "Update"),
    )


@pytest.mark.parametrize(
    ("entries", "path"),
    [
        ([KUBECTL], None),
        ([KUBECTL, OURS], REPLICAS),
        ([entry("kubectl", {"f:spec": {"f:engines": {}}}, "Update", "scale")], ("f:spec", "f:engines")),
        (
            [entry("x", {"f:spec": {".": {}, "f:pool": {".": {}, "f:size": {}}}}, "Update", "scale")],
            ("f:spec", "f:pool", "f:size"),
        ),
        ([entry("controller", {"f:status": {"f:replicas": {}}}, "Update", "status")], None),
    ],
)
def test_the_field_behind_scale_is_what_was_written_through_it(entries: Any, path: managed.Path | None) -> None:
    assert managed.scaled_path(entries) == path


def test_what_is_ours_goes_and_heirs_that_are_left_get_the_field() -> None:
    left = managed.without([OURS, NOTE, KUBECTL], "heliotrope-operator", REPLICAS, [Owner("kubectl", "Apply")])

    assert left == [entry("kubectl", {"f:spec": {"f:selector": {}, "f:replicas": {}}}, "Apply")]
    assert KUBECTL["fieldsV1"] == {"f:spec": {"f:selector": {}}}, "what was read is not changed"


def test_an_heir_that_is_gone_or_differs_gets_nothing() -> None:
    heirs = [Owner("kubectl", "Update"), Owner("helm", "Update")]
    assert managed.without([OURS, KUBECTL], "heliotrope-operator", REPLICAS, heirs) == [KUBECTL]


def test_nobody_left_is_said_so_that_the_server_takes_it() -> None:
    assert managed.without([OURS, NOTE], "heliotrope-operator", REPLICAS, []) == [{}]


names = st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1, max_size=12)
owners = st.builds(Owner, names, st.sampled_from(["Apply", "Update"]), st.sampled_from(["", "scale"]))


@given(
    st.builds(
        Original,
        field=st.sampled_from(["spec.replicas", "spec.maxReplicas", "spec.maxReplicaCount"]),
        value=st.none() | st.integers(0, 100_000),
        variant=names,
        operator=names,
        taken_unix_s=st.integers(0, 2_000_000_000).map(float),
        owners=st.lists(owners, max_size=3).map(tuple),
    )
)
def test_an_original_is_read_as_it_was_written(original: Original) -> None:
    assert read(original.text()) == original
    assert json.loads(original.text()).keys() >= {"field", "value", "variant", "time"}


@pytest.mark.parametrize("text", ["", "3", "{}", '{"field":"spec.replicas"}', "[1]", '{"value":"x"}', "null"])
def test_an_annotation_that_somebody_broke_is_no_original(text: str) -> None:
    with pytest.raises(InvalidInputError, match="cannot be read"):
        read(text)
