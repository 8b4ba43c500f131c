"""Models in the words of `heliotrope explain`."""

from typing import Any

from heliotrope.decide.recorded import ModelRecord
from heliotrope_cli.explain_models import model_lines


def record(**fields: Any) -> ModelRecord:
    document = {
        "group": "large",
        "default": "large",
        "quality_floor": 0.85,
        "least_quality": 0.765,
        "predictor": "table",
        "task": "chat",
        "router_joules": 0.0004,
        "models": [
            {"model": "large", "quality": 0.9, "available": True, "allowed": True},
            {"model": "small", "quality": 0.8, "available": True, "allowed": True, "effort": "low"},
            {"model": "tiny", "quality": None, "available": True, "allowed": False},
            {"model": "away", "quality": 0.9, "available": False, "allowed": False},
        ],
        "applied": True,
        "chosen": "small",
        "why": "quality 0.8 of at least 0.765",
    }
    return ModelRecord.model_validate({**document, **fields})


def test_a_downgrade_names_both_models_the_floor_and_who_else_might_have_answered() -> None:
    first, second = model_lines(record())
    assert first.startswith("Model small answers in place of large, at reasoning effort low: quality at least 0.765")
    assert "small 0.8 (may answer)" in first
    assert "tiny unknown (out)" in first
    assert "away 0.9 (not served)" in first
    assert second.startswith("Quality by table for tasks of class chat; predicting took ")


def test_the_default_a_fallback_and_advice_are_told_apart() -> None:
    assert "Model large answers, the default of large" in model_lines(record(chosen="large"))[0]
    assert "none was set" in model_lines(record(applied=False, chosen=None))[0]
    assert (
        ", as the scorer did not answer in time" in model_lines(record(fallback="the scorer did not answer in time"))[1]
    )
    assert "no quality is known" in model_lines(record(least_quality=None))[0]
    assert model_lines(None) == []
