"""A mirrored object that turns unreadable keeps its last good version until it is mended or deleted."""

import random
from typing import Any

import pytest

from heliotrope.errors import InvalidInputError
from heliotrope_epp.datalayer.kubernetes.connection import Collection, Connection
from heliotrope_epp.datalayer.kubernetes.objects import priority_of
from heliotrope_epp.datalayer.kubernetes.reflector import Reflector, ReflectorTiming


def number_of(item: dict[str, Any]) -> int:
    if not isinstance(item["spec"], int):
        raise InvalidInputError("spec", "must be a number")
    return item["spec"]


@pytest.fixture
def mirror() -> Reflector[int]:
    return Reflector(
        Connection(kubeconfig=None),
        Collection("heliotrope.io", "v1alpha1", "carbonpolicies", "llm"),
        number_of,
        lambda: None,
        refusal_ends=True,
        timing=ReflectorTiming(),
        rng=random.Random(1),
    )


def event(kind: str, name: str, spec: Any) -> dict[str, Any]:
    return {"type": kind, "object": {"metadata": {"name": name, "namespace": "llm"}, "spec": spec}}


def test_the_last_good_version_stays_and_is_told_apart(mirror: Reflector[int]) -> None:
    mirror._apply(event("ADDED", "a", 1))
    mirror._apply(event("MODIFIED", "a", "two"))
    mirror._apply(event("ADDED", "b", "never good"))
    assert dict(mirror.objects) == {"llm/a": 1}
    assert dict(mirror.outdated) == {"llm/a": "carbonpolicies llm/a: spec: must be a number"}
    assert len(mirror.problems) == 2

    mirror._apply(event("MODIFIED", "a", 3))
    assert (dict(mirror.objects), dict(mirror.outdated)) == ({"llm/a": 3}, {})

    mirror._apply(event("MODIFIED", "a", None))
    mirror._apply(event("DELETED", "a", None))
    assert (dict(mirror.objects), dict(mirror.outdated)) == ({}, {})


@pytest.mark.parametrize(("spec", "priority"), [({"priority": -5}, -5), ({}, 0), ({"priority": None}, 0), (None, 0)])
def test_the_priority_of_an_inference_objective(spec: dict[str, Any] | None, priority: int) -> None:
    assert priority_of({"metadata": {"name": "nightly"}, "spec": spec}) == ("nightly", priority)


@pytest.mark.parametrize("priority", ["high", 1.5, True])
def test_a_priority_that_is_no_number_is_refused(priority: object) -> None:
    with pytest.raises(InvalidInputError, match=r"spec\.priority"):
        priority_of({"metadata": {"name": "x"}, "spec": {"priority": priority}})
