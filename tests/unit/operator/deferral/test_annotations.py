"""What a Job asks for, in its annotations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope_operator.deferral.annotations import parse

HOUR = 3600.0


def ask(annotations: dict[str, str], longest_run_s: float | None = None) -> object:
    return parse(annotations.items(), created_unix_s=1_000_000.0, longest_run_s=longest_run_s)


def prefixed(**annotations: str) -> dict[str, str]:
    return {f"heliotrope.io/{name.replace('_', '-')}": value for name, value in annotations.items()}


def test_a_whole_ask() -> None:
    found = ask(
        prefixed(
            deadline="12h", expected_duration="2h", longest_duration="3h", expected_power_watts="2800", region="es"
        )
    )

    assert found.work.expected_s == 2 * HOUR
    assert found.work.longest_s == 3 * HOUR
    assert found.work.deadline_unix_s == 1_000_000.0 + 12 * HOUR
    assert (found.power_watts, found.region, found.problems) == (2800.0, "es", ())


def test_a_deadline_may_be_a_time() -> None:
    found = ask(prefixed(deadline="2026-06-01T06:00:00+02:00", expected_duration="2h"))

    assert found.work.deadline_unix_s == 1_780_286_400.0


@pytest.mark.parametrize(
    ("annotations", "limit_s", "durations"),
    [
        (prefixed(expected_duration="2h"), None, (2 * HOUR, 3 * HOUR)),
        (prefixed(longest_duration="2h"), None, (2 * HOUR, 2 * HOUR)),
        (prefixed(expected_duration="2h"), 2.5 * HOUR, (2 * HOUR, 2.5 * HOUR)),
        (prefixed(expected_duration="2h"), HOUR, (HOUR, HOUR)),
        ({}, HOUR, (HOUR, 1.5 * HOUR)),
    ],
)
def test_durations_fill_in_for_each_other(
    annotations: dict[str, str], limit_s: float | None, durations: tuple[float, float]
) -> None:
    found = ask(annotations, limit_s)

    assert found.work.expected_s == durations[0]
    assert found.work.longest_s == min(durations[1], limit_s or durations[1])


def test_without_any_duration_there_is_no_work_to_plan() -> None:
    assert ask(prefixed(deadline="12h")).work is None


@pytest.mark.parametrize(
    ("annotations", "words"),
    [
        (prefixed(deadline="tomorrow", expected_duration="1h"), "heliotrope.io/deadline"),
        (prefixed(deadline="2026-06-01T06:00:00", expected_duration="1h"), "heliotrope.io/deadline"),
        (prefixed(expected_duration="2 hours"), "heliotrope.io/expected-duration"),
        (prefixed(expected_duration="0s"), "above 0"),
        (prefixed(expected_duration="2h", longest_duration="1h"), "longest-duration"),
        (prefixed(expected_duration="2h", expected_power_watts="-3"), "heliotrope.io/expected-power-watts"),
    ],
)
def test_what_cannot_be_read_is_named(annotations: dict[str, str], words: str) -> None:
    found = ask(annotations)

    assert found.work is None
    assert len(found.problems) == 1
    assert words in found.problems[0]


def test_what_the_operator_wrote_is_never_a_reason_to_refuse() -> None:
    found = ask(prefixed(expected_duration="1h", planned_start="garbage", undeferred_intensity="-1"))

    assert (found.planned_unix_s, found.undeferred_g_per_kwh, found.problems) == (None, None, ())
    assert found.work is not None


@given(
    annotations=st.dictionaries(
        st.sampled_from(
            sorted(prefixed(deadline="", expected_duration="", longest_duration="", expected_power_watts=""))
        ),
        st.text(max_size=40) | st.from_regex(r"[0-9]{1,6}(h|m|s|ms)", fullmatch=True),
    ),
    limit_s=st.none() | st.floats(1.0, 1e6),
)
def test_no_text_breaks_it(annotations: dict[str, str], limit_s: float | None) -> None:
    found = ask(annotations, limit_s)

    assert (found.work is None) or found.problems == ()
    if found.work is not None and limit_s is not None:
        assert found.work.longest_s <= limit_s
