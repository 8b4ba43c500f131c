import pytest

from heliotrope.api.v1alpha1.carbonpolicy import CarbonPolicy
from heliotrope.errors import InvalidInputError
from heliotrope_sim.demo.ablation import CAVEAT, attribution
from heliotrope_sim.demo.client import RequestResult
from heliotrope_sim.demo.fleet import _policy
from heliotrope_sim.demo.levers import Lever, parse
from heliotrope_sim.demo.reuse import reuse
from heliotrope_sim.demo.scenario import Scenario


@pytest.mark.parametrize(
    ("text", "levers"),
    [
        ("all", tuple(Lever)),
        ("none", ()),
        ("kv", (Lever.KV,)),
        ("sessions, carbon,kv,kv", (Lever.CARBON, Lever.KV, Lever.SESSIONS)),
    ],
)
def test_levers_are_named(text: str, levers: tuple[Lever, ...]) -> None:
    assert parse(text) == levers


@pytest.mark.parametrize("text", ["", "carbon,joules", "all,none", "Carbon"])
def test_what_is_no_lever_is_refused_with_those_there_are(text: str) -> None:
    with pytest.raises(InvalidInputError, match="consolidation"):
        parse(text)


def test_each_lever_is_taken_away_by_a_valid_policy_of_its_own() -> None:
    specs = {}
    for lever in Lever:
        document = _policy(Scenario(), lever)
        specs[lever] = CarbonPolicy.model_validate(document).spec
    whole = specs.pop(Lever.NOTHING)
    assert len({spec.model_dump_json() for spec in (*specs.values(), whole)}) == len(Lever)
    assert "carbon" not in specs[Lever.CARBON].objective.order
    assert "energy" not in specs[Lever.CONSOLIDATION].objective.order
    assert list(specs[Lever.KV].kv_actions.allowed) == ["Recompute"]
    assert "LocalHit" not in specs[Lever.SESSIONS].kv_actions.allowed
    assert all(spec.slo == whole.slo and spec.enforcement == "Enforce" for spec in specs.values())


def figures(grams: float, joules: float) -> dict[str, object]:
    return {
        "grams_co2e": grams,
        "joules": joules,
        "failed": 0,
        "slo_violations": 0,
        "ttft_p50_ms": 1.0,
        "ttft_p95_ms": 2.0,
        "cache_hit_share": 0.2,
        "recomputed_prompt_tokens": 5,
        "later_turns_elsewhere": 1,
    }


def test_what_is_lost_without_a_lever_is_a_share_of_the_saving() -> None:
    arms = {Lever.CARBON: figures(25.0, 450.0), Lever.KV: figures(19.0, 460.0), Lever.NOTHING: figures(19.5, 440.0)}
    found = attribution(figures(30.0, 500.0), figures(20.0, 450.0), arms)
    assert (found["grams_saved"], found["joules_saved"]) == (10.0, 50.0)
    carbon, kv = found["levers"]["carbon"], found["levers"]["kv"]
    assert (carbon["grams_lost"], carbon["share_of_grams_saved"], carbon["joules_lost"]) == (5.0, 0.5, 0.0)
    assert (kv["grams_lost"], kv["share_of_joules_saved"]) == (-1.0, 0.2)
    assert set(found["levers"]) == {"carbon", "kv"}
    assert (found["run_to_run"]["grams_difference"], found["run_to_run"]["joules_difference"]) == (0.5, 10.0)
    assert found["caveat"] == CAVEAT
    assert "need not add up" in CAVEAT


def test_without_a_saving_there_are_no_shares_and_without_a_second_run_no_noise() -> None:
    found = attribution(figures(20.0, 450.0), figures(20.0, 460.0), {Lever.KV: figures(21.0, 460.0)})
    assert found["levers"]["kv"]["share_of_grams_saved"] is None
    assert found["levers"]["kv"]["share_of_joules_saved"] is None
    assert found["run_to_run"] is None


def turn(number: int, engine: str, prompt: int, cached: int, history: int, **changes: object) -> RequestResult:
    fields = {
        "request_id": f"t{number}", "arrival_seconds": 0.0, "streaming": False, "status": 200, "output_tokens": 1,
        "ttft_seconds": None, "tpot_seconds": None, "e2e_seconds": 1.0, "engine": engine, "conversation": "c",
        "turn": number, "prompt_tokens": prompt, "cached_tokens": cached, "history_tokens": history,
    }  # fmt: skip
    return RequestResult(**{**fields, **changes})  # type: ignore[arg-type]


def test_history_that_was_not_cached_was_computed_again() -> None:
    rows = [
        turn(0, "a", 100, 0, 0),
        turn(1, "a", 150, 96, 110),
        turn(2, "b", 200, 0, 160),
        turn(3, "b", 999, 0, 900, status=503, error="HTTP 503"),
        turn(0, "a", 50, 32, 0, conversation=None),
    ]
    assert reuse(rows) == {
        "prompt_tokens": 500,
        "cached_prompt_tokens": 128,
        "cache_hit_share": 128 / 500,
        "recomputed_prompt_tokens": 14 + 160,
        "later_turns": 2,
        "later_turns_elsewhere": 1,
    }
    assert reuse([])["cache_hit_share"] is None
