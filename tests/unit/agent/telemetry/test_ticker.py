import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope_agent.telemetry.ticker import Ticker, next_turn


@pytest.mark.parametrize(
    ("turn", "elapsed_s", "due"),
    [
        (0, 0.01, 1),  # in time
        (0, 0.99, 1),
        (0, 1.5, 1),  # late: at once
        (0, 2.0, 2),  # a whole period too late: that one is left out
        (3, 9.7, 9),
        (9, 9.1, 10),
    ],
)
def test_turns(turn: int, elapsed_s: float, due: int) -> None:
    assert next_turn(turn, elapsed_s, 1.0) == due


@given(st.integers(0, 1_000), st.floats(0, 2_000), st.sampled_from([0.1, 1.0]))
def test_turns_go_on_and_never_wait_longer_than_a_period(turn: int, elapsed_s: float, period_s: float) -> None:
    due = next_turn(turn, elapsed_s, period_s)
    assert due > turn
    assert due * period_s <= max(elapsed_s, (turn + 1) * period_s) + 1e-9


def test_no_delay_adds_up_and_what_is_left_out_is_counted() -> None:
    # A clock that stands still but for what calls take: 1.5, then 3.25 periods, then none at all.
    takes_s = [0.003, 0.0065, 0.0, 0.002]
    now_s = 0.0
    starts: list[float] = []
    done = threading.Event()

    def tick() -> None:
        nonlocal now_s
        starts.append(now_s)
        now_s += takes_s[len(starts) - 1]
        if len(starts) == len(takes_s):
            done.set()
            release.wait(10)

    def clock() -> float:
        # Whoever waits for a turn finds that its time has come.
        nonlocal now_s
        asked_s = now_s
        if len(starts) == 3 and not done.is_set():
            now_s = 0.010
        return asked_s

    release = threading.Event()
    ticker = Ticker("test", 0.002, tick, clock=clock)
    ticker.start()
    assert done.wait(10)
    # Turns 0, 1 (late, at once), 4 (2 and 3 have passed) and 5.
    assert starts == pytest.approx([0.0, 0.003, 0.0095, 0.010])
    assert (ticker.ticks, ticker.missed) == (3, 2)
    release.set()
    assert ticker.stop(10)


def test_a_defect_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    done = threading.Event()

    def tick() -> None:
        if ticker.ticks:
            done.set()
        raise ZeroDivisionError

    ticker = Ticker("sums", 0.001, tick)
    ticker.start()
    assert done.wait(10)
    assert ticker.stop()
    assert ticker.defects >= 2
    assert "sums failed; it goes on" in caplog.text


def test_one_that_hangs_is_left_behind() -> None:
    release = threading.Event()
    ticker = Ticker("stuck", 1.0, lambda: bool(release.wait(30)) and None)
    ticker.start()
    assert not ticker.stop(0.05)
    release.set()
    assert ticker.stop(10)


def test_one_that_never_started_stops() -> None:
    assert Ticker("idle", 1.0, lambda: None).stop()
