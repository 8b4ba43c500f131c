"""A cache that an engine says it has cleared is believed no longer."""

from tests.unit.epp.plugins.sessions.test_tracker import Bench

from heliotrope_epp.datalayer.kv_event_wire import Cleared, Event, Removed
from heliotrope_epp.plugins.sessions.kv_events import SessionSink


class Index:
    """Takes down what it is handed."""

    def __init__(self) -> None:
        self.handed: list[tuple[str, object]] = []

    def kv_events(self, endpoint: str, events: list[Event]) -> None:
        self.handed.append((endpoint, events))

    def kv_lost(self, endpoint: str) -> None:
        self.handed.append((endpoint, None))


def test_a_cleared_cache_is_told_to_sessions_and_everything_to_the_index() -> None:
    bench, index = Bench(), Index()
    sink = SessionSink(index, bench.tracker)
    bench.serve(bench.ask("s"), "a")
    some: list[Event] = [Removed(hashes=(1,), medium=None)]
    every: list[Event] = [*some, Cleared()]
    for endpoint, events, believed in (("a", some, 700), ("b", every, 700), ("a", every, 0)):
        sink.kv_events(endpoint, events)
        found = bench.ask("s")
        assert found.session is not None
        assert found.session.view is not None
        assert found.session.view.cached_tokens("a") == believed
    sink.kv_lost("a")
    assert index.handed == [("a", some), ("b", every), ("a", every), ("a", None)]
