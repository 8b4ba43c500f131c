"""KV actions in the words of `heliotrope explain`."""

import pytest

from heliotrope.cache.action import KvAction
from heliotrope.decide.recorded import Candidate
from heliotrope_cli.explain_kv import kv_sentence


def chosen(action: str | None, **fields: object) -> Candidate:
    numbers = {"cached_tokens": 8000.0, "transfer_seconds": 0.1352, "transfer_joules": 9.02}
    return Candidate.model_validate({"endpoint": "ns/b", "kv_action": action, **numbers, **fields})


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ("PeerTransfer", ("8,000 prompt tokens pulled from ns/a", "135", "9.0")),
        ("OffloadReload", ("8,000 prompt tokens reloaded from a lower tier", "135")),
        ("LocalHit", ("8,000 prompt tokens expected in the cache of the session's endpoint",)),
        ("RouteToOwner", ("8,000 prompt tokens expected in the endpoint's cache",)),
        ("Teleport", ("Teleport",)),
    ],
)
def test_every_action_has_a_sentence(action: str, words: tuple[str, ...]) -> None:
    sentence = kv_sentence(chosen(action, kv_source="ns/a"))
    assert sentence is not None
    for word in words:
        assert word in sentence


def test_nothing_is_said_of_a_recompute_or_of_what_is_unknown() -> None:
    assert kv_sentence(None) is None
    assert kv_sentence(chosen(None)) is None
    assert kv_sentence(chosen(KvAction.RECOMPUTE)) is None
    unknown = kv_sentence(chosen("PeerTransfer", cached_tokens=None, transfer_seconds=None, transfer_joules=None))
    assert unknown is not None
    assert "None" not in unknown
