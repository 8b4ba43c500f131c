"""The region tier's span."""

from dataclasses import replace

from opentelemetry.trace.status import StatusCode
from tests.unit.epp.tracing.bench import only
from tests.unit.epp.tracing.placements import PLACED, placed


def test_a_placement_is_a_child_of_the_request_with_its_reasons() -> None:
    span = only(placed(), "heliotrope.region.placement")
    assert span.parent is not None
    assert span.attributes is not None
    assert span.attributes["heliotrope.region"] == "es"
    assert span.attributes["heliotrope.region.reason"] == "objective"
    assert span.attributes["heliotrope.region.held_seconds"] == 30.0
    assert span.status.status_code is StatusCode.UNSET


def test_nowhere_is_an_error_and_what_is_unknown_is_left_out() -> None:
    nowhere = replace(PLACED, region=None, reason="no allowed region is up", gap=float("nan"), session=None)
    span = only(placed(nowhere), "heliotrope.region.placement")
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == "no allowed region is up"
    assert span.attributes is not None
    assert not {"heliotrope.region", "heliotrope.region.gap", "heliotrope.region.session"} & set(span.attributes)
