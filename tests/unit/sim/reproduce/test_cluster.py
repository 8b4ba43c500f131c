"""Parts of studies on a real Dask cluster of one worker process."""

import io
import math
from collections.abc import Iterator

import pytest
from distributed import Client, LocalCluster
from rich.console import Console

from heliotrope.errors import InvalidInputError
from heliotrope_sim.reproduce import cluster
from heliotrope_sim.reproduce.cluster import ClusterUnreachableError, ForeignWorkerError, connected, differences
from heliotrope_sim.reproduce.naming import identity
from heliotrope_sim.reproduce.workers import workers
from heliotrope_sim.scenario.files import Files
from heliotrope_sim.scenario.reading import parse
from heliotrope_sim.scenario.study import prepare, run

SCENARIO = """
name: test
regions: [{name: a, intensity: {grams_per_kwh: 30}}]
sites: [{region: a, engine: llama-3.1-8b-a100-40gb, engines_per_node: 2}]
slo: {ttft_seconds: 2.0, tpot_seconds: 0.1}
policies: [{name: p, scheduler: Facility}, {name: q, scheduler: Greedy}]
workload: {kind: poisson, rate_per_second: 4, duration_seconds: 3}
"""


def quiet() -> Console:
    return Console(file=io.StringIO())


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with LocalCluster(
        n_workers=1, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0", silence_logs=50
    ) as local:
        yield local.scheduler_address


@pytest.fixture
def ours(address: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What the worker saw when it started: source files that are edited meanwhile are no matter of these tests."""
    with Client(address, set_as_default=False) as client:
        (found,) = client.run(lambda: dict(cluster.identity())).values()
    monkeypatch.setattr(cluster, "identity", lambda: found)
    return dict(found)


@pytest.mark.slow
def test_results_do_not_depend_on_where_they_ran(address: str, ours: dict[str, str]) -> None:
    study = prepare(parse(SCENARIO, "s.yaml"), Files(None))
    with workers(1, quiet()) as here:
        cells = run(study, here)
    with workers(1, quiet(), cluster=connected(address)) as there:
        theirs = run(study, there)
    assert [cell.outcome.digest for cell in theirs] == [cell.outcome.digest for cell in cells]
    assert [cell.outcome.grams for cell in theirs] == [cell.outcome.grams for cell in cells]
    assert [cell.outcome.policy for cell in theirs] == ["p", "q"]


@pytest.mark.slow
def test_an_error_of_a_part_is_the_error_of_the_study(address: str, ours: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="domain"), workers(1, quiet(), cluster=connected(address)) as there:
        there.map("x", math.sqrt, [4.0, -1.0])


@pytest.mark.slow
def test_workers_with_another_version_are_refused(
    address: str, ours: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "identity", lambda: ours | {"code": "0123456789abcdef", "numpy": "0.1"})
    says = (
        r"worker tcp://\S+ differs in code \w{16} \(here 0123456789abcdef\), numpy \S+ \(here 0\.1\); install the same"
    )
    with pytest.raises(ForeignWorkerError, match=says), workers(1, quiet(), cluster=connected(address)):
        pass


@pytest.mark.slow
def test_workers_that_join_later_are_looked_at_with_each_part(
    address: str, ours: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with connected(address) as machines:
        monkeypatch.setattr(cluster, "identity", lambda: ours | {"data": "other"})
        part = machines.submit(abs, -1)
        with pytest.raises(ForeignWorkerError, match="a worker that joined differs in data"):
            part.result(timeout=30.0)


def test_nobody_at_the_address_is_one_sentence() -> None:
    says = r"no Dask scheduler answers at tcp://127\.0\.0\.1:9 within 1 s; start one with `dask scheduler`"
    with pytest.raises(ClusterUnreachableError, match=says), connected("tcp://127.0.0.1:9", 1.0):
        pass


@pytest.mark.slow
def test_a_cluster_without_workers_is_told(address: str) -> None:
    with (
        LocalCluster(n_workers=0, dashboard_address="127.0.0.1:0", silence_logs=50) as empty,
        pytest.raises(ClusterUnreachableError, match="has had no workers for 1 s"),
        connected(empty.scheduler_address, 1.0),
    ):
        pass


def test_an_address_needs_its_scheme() -> None:
    with (
        pytest.raises(InvalidInputError, match="--cluster: 'scheduler:8786' must begin with tcp://"),
        connected("scheduler:8786"),
    ):
        pass


def test_differences_are_named() -> None:
    ours = dict(identity())
    assert differences(ours, ours) == ""
    assert differences(ours, ours | {"python": "3.8"}) == f"python 3.8 (here {ours['python']})"
