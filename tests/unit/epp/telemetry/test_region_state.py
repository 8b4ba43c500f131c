"""`/v1/state`: sums by region, unknown as null, and what a reader refuses."""

import json
from typing import Any

import pytest

from heliotrope.engine.coefficients import Coefficient, coefficients
from heliotrope.engine.profiles import load as load_profile
from heliotrope.errors import InvalidInputError
from heliotrope_epp.datalayer.endpoint import ROLE_LABEL, Endpoint, EngineMetrics, Traits
from heliotrope_epp.datalayer.region_state import decode, encode
from heliotrope_epp.datalayer.store import EndpointStore
from heliotrope_epp.datalayer.world import World
from heliotrope_epp.telemetry.region_state import state_page

ENGINE = load_profile("llama-3.1-8b-h100")
REGION = (
    b'{"version": 1, "pool": null, "time_unix_s": 1, "regions": '
    b'[{"region": "es", "idle_engines": 0, "asleep_engines": 0, "unknown_engines": 0, %s}]}'
)
NOW_S, NOW_UNIX_S = 100.0, 1_700_000_000.0


def store_of(*rows: tuple[str, str | None, EngineMetrics | None, str | None]) -> EndpointStore:
    """Endpoints by name, region, metrics and role."""
    endpoints, traits = [], {}
    for number, (name, region, _, role) in enumerate(rows):
        labels = {} if role is None else {ROLE_LABEL: role}
        endpoint = Endpoint(name, "default", "10.0.0.1", 8000 + number, labels)
        endpoints.append(endpoint)
        traits[endpoint.key] = Traits(region=region, engine=ENGINE)
    store = EndpointStore()
    store.apply(World(endpoints=tuple(endpoints), traits=traits))
    for (_, _, metrics, _), state in zip(rows, store.states(), strict=True):
        if metrics is not None:
            state.scraped(metrics)
    return store


def page_of(**values: Any) -> EngineMetrics:
    plain: dict[str, Any] = {"running": 0.0, "waiting": 0.0, "kv_usage": 0.0, "block_size": 16, "num_blocks": 1000}
    return EngineMetrics(values.pop("scraped_s", NOW_S - 0.1), **plain | values)


def read(store: EndpointStore) -> dict[str | None, Any]:
    """Through the wire, as another process reads it."""
    page = state_page(store, pool="default/llm", now_s=NOW_S, now_unix_s=NOW_UNIX_S, stale_after_s=2.0)
    document = json.loads(encode(page))
    assert (document["version"], document["pool"], document["time_unix_s"]) == (1, "default/llm", NOW_UNIX_S)
    assert decode(encode(page)) == page
    return {region["region"]: region for region in document["regions"]}


def test_means_are_over_awake_engines_and_places_are_summed() -> None:
    es = read(
        store_of(
            ("a", "es", page_of(running=10.0, waiting=2.0, kv_usage=0.5), None),
            ("b", "es", page_of(), None),
            ("c", "es", page_of(asleep=True), None),
            ("d", "es", page_of(scraped_s=NOW_S - 60.0, running=50.0), None),
        )
    )["es"]
    assert (es["engines"], es["idle_engines"], es["asleep_engines"], es["unknown_engines"]) == (2, 1, 1, 1)
    assert (es["running"], es["waiting"], es["kv_usage"]) == (5.0, 1.0, 0.25)
    assert es["kv_tokens"] == pytest.approx(0.5 * 16_000 / 2)
    assert es["batch_capacity"] == ENGINE.max_num_seqs
    assert es["free_slots"] == 2 * ENGINE.max_num_seqs - 12.0


def test_the_step_model_travels_by_name_and_number() -> None:
    step = read(store_of(("a", "es", page_of(), None)))["es"]["engine"]
    row = coefficients(ENGINE)
    assert (step["name"], step["engines"]) == ("llama-3.1-8b-h100", 1)
    assert step["coefficients"] == {c.name.lower(): row[c] for c in Coefficient}


def test_unknown_is_null_and_no_zero() -> None:
    regions = read(store_of(("a", "es", None, None), ("b", None, page_of(running=None, waiting=1.0), None)))
    es, nowhere = regions["es"], regions[None]
    assert (es["engines"], es["unknown_engines"]) == (0, 1)
    assert [es[k] for k in ("running", "waiting", "kv_tokens", "free_slots", "batch_capacity")] == [None] * 5
    assert nowhere["running"] is None
    assert nowhere["free_slots"] is None
    assert nowhere["idle_engines"] == 0


def test_phases_count_where_they_are_served() -> None:
    es = read(
        store_of(
            ("p", "es", page_of(running=1.0, waiting=6.0), "prefill"),
            ("d", "es", page_of(running=40.0), "decode"),
        )
    )["es"]
    assert (es["engines"], es["running"], es["waiting"]) == (1, 40.0, 6.0)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"<html>", "is not JSON"),
        (b"\xff", "is not JSON"),
        (b"[]", "Expected `object`"),
        (b'{"version": 1, "pool": null, "time_unix_s": 1}', "missing required field `regions`"),
        (b'{"version": 2, "pool": null, "time_unix_s": 1, "regions": []}', "is 2; this process reads 1"),
        (REGION % b'"engines": -1', r"\$.regions\[0\].engines"),
        (REGION % b'"engines": 1, "running": 1e300', r"\$.regions\[0\].running"),
    ],
)
def test_what_is_no_page_is_refused_with_the_place(body: bytes, problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        decode(body)
