from random import Random

from heliotrope_epp.datalayer.backoff import Backoff


def test_it_grows_to_its_limit_and_starts_over() -> None:
    backoff = Backoff(1.0, 30.0, Random(1))
    waits = [backoff.failed() for _ in range(200)]
    for i, wait in enumerate(waits):
        longest = min(2.0 ** min(i, 10), 30.0)
        assert longest / 2 <= wait <= longest
    assert len(set(waits[10:])) == 190
    backoff.succeeded()
    assert backoff.failed() <= 1.0
