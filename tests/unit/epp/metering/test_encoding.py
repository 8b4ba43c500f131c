"""Who gets the joules of an encoder."""

import pytest
from tests.unit.epp.metering.played import Played, raised
from tests.unit.epp.metering.test_meter import ENGINE, booked, energy, go

from heliotrope.engine.encoder import DEFAULT_ENCODER
from heliotrope_epp.metering.totals import WithoutEnergy
from heliotrope_epp.outcomes.energy import NoSteps
from heliotrope_epp.outcomes.meter import EncodedAt
from heliotrope_epp.transport.interface import Cause

D, E, F = "ns/d", "ns/e", "ns/f"


def world(role: str = "encode", *, hold_s: float = 0.0, dark: tuple[str, ...] = ()) -> Played:
    """A decoder and two encoders, whose counters have begun to count; those of `dark` show none."""
    played = Played("d", "e", "f", engine=ENGINE, hold_s=hold_s, roles={"e": role, "f": role})
    for key, counted in played.counted.items():
        counted.accelerators = {} if key in dark else {"gpu": 1_000_000}
    played.tick()
    go(played, 1.0, 100)
    return played


def images(endpoint: str, *tokens: float, remembered: tuple[float, ...] = (), seconds: float = 0.1) -> EncodedAt:
    return EncodedAt(endpoint, tokens, remembered, seconds)


def serve(played: Played, name: str, *encodes: EncodedAt) -> None:
    """Images are encoded within a second, in which encoders draw 50 J; then four tokens come, at 20 J."""
    sent = played.send(name, D, encodes=encodes)
    played.encode(encodes, wrapper_tokens=8)
    go(played, 1.0, 50_000, *(at.endpoint for at in encodes))
    played.chunks(sent, 4)
    go(played, 0.2, 20_000, D)
    played.end(sent, tokens=4, prompt_tokens=100)
    go(played, 1.0, 1_000)


def of(played: Played, key: str, line: str) -> int:
    return sum(getattr(each, f"{line}_millijoules") for each in played.intervals if each.endpoint == key)


def test_an_encoder_charges_the_request_whose_images_it_encodes() -> None:
    played = world()
    serve(played, "r", images(E, 200.0, seconds=1.0))

    found = energy(played, "r")
    assert [share.endpoint for share in found.engines] == [D, E]
    assert [share.millijoules for share in found.engines] == [of(played, D, "requests"), of(played, E, "requests")]
    assert found.engines[1].millijoules == 50_000
    assert found.millijoules == sum(share.millijoules for share in found.engines)
    assert found.engines[1].accelerator_seconds == pytest.approx(1.0)
    assert found.coverage == pytest.approx(1.0)
    assert of(played, F, "requests") == 0
    assert booked(played, "others") == 0, "the tokens around an image are no other's request"


def test_idle_power_of_an_encoder_is_not_its_requests() -> None:
    played = world()
    serve(played, "r", images(E, 200.0, seconds=0.01))
    assert 0 < of(played, E, "requests") < 50_000
    assert of(played, E, "requests") + of(played, E, "idle") == of(played, E, "total")


def test_two_requests_share_an_encoder_by_their_images() -> None:
    played = world()
    small, large = images(E, 100.0, seconds=0.5), images(E, 4_000.0, 4_000.0, seconds=0.5)
    sent = [played.send("small", D, encodes=(small,)), played.send("large", D, encodes=(large,))]
    played.encode([small, large])
    go(played, 1.0, 400_000, E)
    for each in sent:
        played.chunks(each, 1)
        played.end(each, tokens=1, prompt_tokens=100)
    go(played, 1.0, 1_000)

    drew = {name: energy(played, name).engines[1].millijoules for name in ("small", "large")}
    joules = {"small": DEFAULT_ENCODER.joules(1, 100), "large": 2 * DEFAULT_ENCODER.joules(1, 4_000)}
    assert sum(drew.values()) == 400_000
    assert drew["large"] / drew["small"] == pytest.approx(joules["large"] / joules["small"], rel=1e-3)


def test_a_remembered_image_draws_nothing_and_is_no_others() -> None:
    played = world()
    again, first = images(E, remembered=(200.0,), seconds=0.0), images(E, 200.0, seconds=1.0)
    sent = [played.send("again", D, encodes=(again,)), played.send("first", D, encodes=(first,))]
    played.encode([again, first])
    go(played, 1.0, 50_000, E)
    for each in sent:
        played.chunks(each, 1)
        played.end(each, tokens=1, prompt_tokens=100)
    go(played, 1.0, 1_000)

    assert energy(played, "again").engines[1].millijoules == 0
    assert energy(played, "first").engines[1].millijoules == 50_000
    assert of(played, E, "others") == 0


def test_others_images_are_not_charged_to_ours() -> None:
    played = world()
    ours = images(E, 200.0, seconds=0.5)
    sent = played.send("r", D, encodes=(ours,))
    played.encode([ours, images(E, 200.0), images(E, 200.0), images(E, 200.0)])
    go(played, 1.0, 100_000, E)
    played.chunks(sent, 1)
    played.end(sent, tokens=1, prompt_tokens=100)
    go(played, 1.0, 1_000)

    own = energy(played, "r").engines[1].millijoules
    assert own / (own + of(played, E, "others")) == pytest.approx(0.25, abs=0.01)


def test_two_encoders_of_one_request_are_two_engines() -> None:
    played = world()
    serve(played, "r", images(E, 200.0, seconds=1.0), images(F, 300.0, seconds=1.0))
    found = energy(played, "r")
    assert [(share.endpoint, share.millijoules) for share in found.engines[1:]] == [(E, 50_000), (F, 50_000)]


def test_an_encoder_that_also_decodes_is_one_engine() -> None:
    played = world("encode-prefill-decode")
    at = images(E, 200.0, seconds=0.1)
    sent = played.send("r", E, encodes=(at,))
    played.encode([at])
    go(played, 0.5, 50_000, E)
    played.chunks(sent, 3)
    go(played, 0.5, 50_000, E)
    played.end(sent, tokens=3, prompt_tokens=100)
    go(played, 1.0, 1_000)
    assert energy(played, "r").engines == ()
    assert energy(played, "r").millijoules == of(played, E, "requests") >= 50_000


def test_a_request_that_was_refused_had_nothing_encoded() -> None:
    played = world(hold_s=3.0)
    sent = played.send("r", D, encodes=(images(E, 200.0),))
    played.now_s += 0.1
    played.end(sent, status=502, cause=Cause.COMPLETE)
    for _ in range(10):
        go(played, 0.5, 10_000)
    assert energy(played, "r").millijoules == 0


@pytest.mark.parametrize(("dark", "lit"), [((E,), D), ((D,), E)])
def test_an_engine_without_a_counter_takes_nothing_from_what_the_other_shows(dark: tuple[str, ...], lit: str) -> None:
    played = world(dark=dark)
    serve(played, "r", images(E, 200.0, seconds=1.0))
    found = energy(played, "r")
    assert found.millijoules == of(played, lit, "requests") > 0
    assert 0.0 < found.coverage < 0.9


def test_without_any_counter_it_is_told_at_once() -> None:
    played = world(dark=(D, E, F))
    sent = played.send("r", D, encodes=(images(E, 200.0),))
    played.end(sent, tokens=1, prompt_tokens=100)
    assert played.energies == {"r": None}
    assert played.meter.totals.without == {WithoutEnergy.NO_COUNTER: 1}


def test_an_encoder_that_is_gone_settles_the_request_with_what_it_had() -> None:
    played = world()
    at = images(E, 200.0, seconds=1.0)
    sent = played.send("r", D, encodes=(at,))
    played.encode([at])
    go(played, 1.0, 50_000, E)
    played.meter.removed(E)
    del played.states[E], played.counted[E]
    played.chunks(sent, 1)
    go(played, 0.5, 20_000, D)
    played.end(sent, tokens=1, prompt_tokens=100)
    go(played, 1.0, 1_000)
    assert [share.millijoules for share in energy(played, "r").engines] == [of(played, D, "requests"), 50_000]


def test_models_of_text_learn_nothing_from_an_encoder() -> None:
    played = world()
    decoders = played.meter.row(D)
    assert decoders is not None
    for counted in played.counted.values():
        counted.iterations = 0.0
    played.tick(0.5)
    for turn in range(20):
        played.counted[E].iterations = turn + 1.0
        serve(played, str(turn), images(E, 200.0, seconds=1.0))
    assert {each.steps for each in played.intervals if each.endpoint == E} <= {NoSteps.ENCODES}
    encoders = played.meter.row(E)
    assert encoders is not None
    assert encoders["learned_from_intervals"] >= 20
    prior = DEFAULT_ENCODER.base_joules + DEFAULT_ENCODER.joules_per_image
    assert encoders["weights_joules"]["prompt"] > prior, "it drew 50 J an image"
    assert decoders["weights_joules"]["prompt"] == ENGINE.energy.prefill_base_joules


def test_books_of_an_encoder_balance() -> None:
    played = world()
    serve(played, "r", images(E, 200.0))
    for key, counted in played.counted.items():
        counted.accelerators = raised(counted.accelerators, 10)
        row = played.meter.row(key)
        assert row is not None
        books = dict(row["millijoules"])
        delta = books.pop("closed_at") - books.pop("opened_at")
        assert sum(books.values()) == delta
