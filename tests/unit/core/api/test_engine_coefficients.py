"""A WorkloadVariant can spell out any engine model that there is."""

from dataclasses import fields

import pytest
from tests.support.resource_documents import COEFFICIENTS, workload_variant

from heliotrope.api.documents import parse
from heliotrope.api.v1alpha1 import WorkloadVariant
from heliotrope.api.v1alpha1.engine import EngineCoefficients
from heliotrope.engine import profiles
from heliotrope.engine.model import EngineModel

FROM_THE_VARIANT = {"name", "model", "accelerator", "tensor_parallel"}


def test_the_fields_are_those_of_the_engine_model() -> None:
    assert set(EngineCoefficients.model_fields) == {field.name for field in fields(EngineModel)} - FROM_THE_VARIANT


def _coefficients() -> EngineCoefficients:
    variant = parse(workload_variant("coefficients"))
    assert isinstance(variant, WorkloadVariant)
    assert variant.spec.engine is not None
    assert variant.spec.engine.coefficients is not None
    return variant.spec.engine.coefficients


def test_coefficients_become_the_model_that_they_describe() -> None:
    named = {"name": "v", "model": "m", "accelerator": "a", "tensor_parallel": 1}

    model = EngineModel.from_mapping(named | _coefficients().model_dump())

    assert model.prefill.seconds_per_token_squared == 7.1844e-10
    assert model.decode.alpha_seconds == (0.0077625, 4.5395e-05, 6.9198e-08)
    assert (model.clock.max_mhz, model.unloaded_watts) == (1980, 71.8)


def test_a_model_written_as_decimal_strings_loses_nothing() -> None:
    assert _coefficients().model_dump(by_alias=True, mode="json") == COEFFICIENTS


@pytest.mark.parametrize("name", profiles.available())
def test_every_shipped_profile_can_be_spelled_out(name: str) -> None:
    shipped = profiles.load(name)
    own = {key: value for key, value in shipped.to_mapping().items() if key not in FROM_THE_VARIANT}

    spelled = EngineCoefficients.model_validate(EngineCoefficients(**own).model_dump(by_alias=True, mode="json"))

    named = {key: getattr(shipped, key) for key in FROM_THE_VARIANT}
    assert EngineModel.from_mapping(named | spelled.model_dump()) == shipped
