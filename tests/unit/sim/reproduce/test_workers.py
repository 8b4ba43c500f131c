import io
import multiprocessing
import time

import pytest
from rich.console import Console

from heliotrope_sim.reproduce.workers import Workers, workers


def double(value: int) -> int:
    time.sleep(0.01 * (5 - value))
    return 2 * value


def fail(value: int) -> int:
    raise ValueError(f"task {value}")


def sleep(_: int) -> None:
    time.sleep(60.0)


def interrupted(pool: Workers) -> None:
    assert pool.map("warm", double, [4]) == [8]
    pool._pool.submit(sleep, 1)  # type: ignore[union-attr]
    raise KeyboardInterrupt


def quiet() -> Console:
    return Console(file=io.StringIO())


def test_one_job_runs_here() -> None:
    with workers(1, quiet()) as pool:
        assert pool.map("x", double, [1, 2, 3]) == [2, 4, 6]


@pytest.mark.slow
def test_results_come_in_the_order_of_the_tasks() -> None:
    with workers(2, quiet()) as pool:
        assert pool.map("x", double, [0, 1, 2, 3, 4]) == [0, 2, 4, 6, 8]


@pytest.mark.slow
def test_an_error_of_a_task_ends_the_block_and_its_processes() -> None:
    before = set(multiprocessing.active_children())
    with pytest.raises(ValueError, match="task 1"), workers(2, quiet()) as pool:
        pool.map("x", fail, [1])
    assert set(multiprocessing.active_children()) <= before


@pytest.mark.slow
def test_an_interrupt_does_not_wait_for_tasks() -> None:
    before, started = set(multiprocessing.active_children()), time.monotonic()
    with pytest.raises(KeyboardInterrupt), workers(2, quiet()) as pool:
        interrupted(pool)
    assert time.monotonic() - started < 30.0
    assert set(multiprocessing.active_children()) <= before
