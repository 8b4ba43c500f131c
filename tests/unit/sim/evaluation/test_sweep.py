"""Runs of one engine: what the picker sees is what it would see, what comes true is what the engine did."""

from itertools import islice

import numpy as np
import pytest

from heliotrope.engine import profiles
from heliotrope.predict.features import column_of
from heliotrope_cli.picker_view import EndpointView
from heliotrope_sim.evaluation.fleet import MISCALIBRATION, SweptEndpoint, miscalibrated, swept_endpoints
from heliotrope_sim.evaluation.floor import floors
from heliotrope_sim.evaluation.lengths import Lengths, draw, load_lengths
from heliotrope_sim.evaluation.regimes import HELD_OUT_LOADS, TRAINING_LOADS, Regime, regime
from heliotrope_sim.evaluation.rows import requests_of, steps_of
from heliotrope_sim.evaluation.sweep import RunResult, saturated_rate, sweep_run

ENGINE = profiles.load("llama-3.1-8b-h100")
KNOWN = SweptEndpoint("known", ENGINE, ENGINE)
UNKNOWN = SweptEndpoint("unknown", ENGINE, None)
LENGTHS = load_lengths()


def run(endpoint: SweptEndpoint = KNOWN, *, rate: float = 4.0, count: int = 60, **options: object) -> RunResult:
    return sweep_run(
        endpoint,
        arrivals=draw(LENGTHS, np.random.default_rng(2)),
        count=count,
        rate_per_second=rate,
        utilisation=0.4,
        view=EndpointView,
        rng=np.random.default_rng(3),
        **options,  # type: ignore[arg-type]
    )


def test_equal_seeds_give_equal_runs() -> None:
    first, second = (requests_of([run()]) for _ in range(2))
    np.testing.assert_array_equal(first.rows, second.rows)
    np.testing.assert_array_equal(first.joules, second.joules)


def test_a_lone_request_takes_what_the_engine_model_says() -> None:
    lengths = Lengths("code", 1_000, 2)
    one = sweep_run(
        KNOWN,
        arrivals=iter([lengths] * 2),
        count=2,
        rate_per_second=1e-2,
        utilisation=0.0,
        view=EndpointView,
        rng=np.random.default_rng(1),
    ).requests[-1]
    assert one.ttft_seconds == pytest.approx(float(ENGINE.prefill_seconds(1_000.0)), rel=1e-6)
    assert one.tpot_seconds == pytest.approx(float(ENGINE.decode_seconds(1.0, 1_000.0)), rel=1e-6)
    joules = float(ENGINE.prefill_joules(1_000.0)) + float(ENGINE.decode_joules(1.0, 1_000.0))
    assert one.energy_joules == pytest.approx(joules, rel=1e-6)
    assert one.met_step_seconds == 0.0


def test_rows_hold_the_real_pickers_state() -> None:
    requests = requests_of([run(rate=8.0)])
    waiting, running, since = (
        requests.rows[:, column_of(name)] for name in ("waiting", "running", "seconds_since_piece")
    )
    assert waiting.max() >= 1.0
    assert running.max() > 5.0
    assert np.nanmax(since) < 1.0
    assert np.isfinite(requests.rows[:, column_of("analytic_ttft_seconds")]).all()
    assert np.isnan(requests_of([run(UNKNOWN)]).rows[:, column_of("analytic_ttft_seconds")]).all()


def test_the_running_step_is_known_from_the_pieces_of_answers() -> None:
    """What the picker takes for the time since the step began lies within the step that ran in truth."""
    requests = requests_of([run(rate=8.0)])
    elapsed, prefills = (requests.rows[:, column_of(name)] for name in ("step_seconds", "step_prefills"))
    known = np.isfinite(elapsed)
    assert known.mean() > 0.9
    assert (elapsed[known] <= requests.met_step_seconds[known] + 1e-9).all()
    # Decodes are short and prefills of these prompts are not.
    longest_decode = float(ENGINE.decode_seconds(float(ENGINE.max_num_seqs), float(ENGINE.kv_capacity_tokens)))
    assert (prefills[requests.met_step_seconds > longest_decode] == 1.0).all()
    assert set(np.unique(prefills[known])) == {0.0, 1.0}


def test_another_pickers_requests_are_seen_in_scrapes_alone() -> None:
    alone, shared = run(rate=8.0), run(rate=8.0, own_share=0.5)
    assert len(shared.requests) < len(alone.requests) == 54  # a tenth is warm-up
    assert requests_of([shared]).rows[:, column_of("running")].max() > 5.0


def test_capacity_is_what_saturation_completes() -> None:
    capacity = saturated_rate(KNOWN, draw(LENGTHS, np.random.default_rng(1)), 300)
    lengths = list(islice(draw(LENGTHS, np.random.default_rng(1)), 300))
    batch = ENGINE.max_num_seqs
    output = float(np.mean([r.output_tokens for r in lengths]))
    prompt = float(np.mean([r.prompt_tokens for r in lengths]))
    step = float(ENGINE.decode_seconds(float(batch), batch * (prompt + output / 2)))
    most = batch / (output * step)  # without any prefill
    assert 0.4 * most < capacity < most


def test_steps_are_kept_with_their_energy() -> None:
    steps = steps_of([run()])
    assert len(steps) > 20
    assert (steps.joules > 0.0).all()


@pytest.mark.slow
def test_twins_share_the_state_and_differ_in_the_future() -> None:
    futures = {"twin_every": 10, "other_futures": lambda rng: draw(LENGTHS, rng), "count": 22}
    busy, lonely = run(rate=8.0, **futures), run(rate=2e-3, **futures)
    assert len(busy.twins) == len(lonely.twins) == 2
    spread = floors(busy.twins, [0] * 2, seed=1)
    assert all(0.0 < score.value < 1.0 for score in spread[1:])
    # Nobody else comes in time: every future is the same.
    assert [score.value for score in floors(lonely.twins, [0] * 2, seed=1)] == [0.0, 0.0, 0.0]


def test_a_twin_leaves_the_run_as_it_was() -> None:
    futures = {"twin_every": 15, "other_futures": lambda rng: draw(LENGTHS, rng)}
    plain, twinned = run(rate=8.0, count=40), run(rate=8.0, count=40, **futures)
    assert len(twinned.twins) == 2
    assert [o.energy_joules for o in plain.requests] == [o.energy_joules for o in twinned.requests]


def test_what_the_picker_believes_is_wrong_but_not_absurd() -> None:
    believed = miscalibrated(ENGINE, np.random.default_rng(1))
    for name, value in ENGINE.to_mapping()["prefill"].items():
        other = believed.to_mapping()["prefill"][name]
        if name == "knee_tokens":
            assert other == value
        else:
            assert value * (1 - MISCALIBRATION) <= other <= value * (1 + MISCALIBRATION)
            assert other != value
    kinds = swept_endpoints(5)
    assert len(kinds) == 3 * len(profiles.available())
    assert sum(kind.believed is None for kind in kinds) == len(profiles.available())
    assert kinds == swept_endpoints(5) != swept_endpoints(6)


def test_regimes_by_utilisation() -> None:
    assert [regime(u) for u in (0.1, 0.8, 0.81, 1.05, 1.1, 2.0)] == [
        Regime.BELOW,
        Regime.BELOW,
        Regime.AROUND,
        Regime.AROUND,
        Regime.ABOVE,
        Regime.ABOVE,
    ]
    assert not set(TRAINING_LOADS) & set(HELD_OUT_LOADS)
    assert {regime(u) for u in HELD_OUT_LOADS} == {regime(u) for u in TRAINING_LOADS} == set(Regime)
