"""Pickers that share an old view spread out; one that is alone loses nothing by the default."""

import pytest
from tests.support.herding import OVERLOADED, Herd, simulate

HERD = Herd(pickers=4, endpoints=8, requests_per_scrape=24, scrapes=2)


def test_pickers_with_an_old_view_herd_less_with_two_choices() -> None:
    compared, drawn = (simulate(HERD, choices=k) for k in (0, 2))
    assert compared.largest_share > 1.4 * drawn.largest_share
    assert compared.mean_batch > drawn.mean_batch


@pytest.mark.parametrize("choices", [0, 2])
def test_one_picker_knows_what_it_sends(choices: int) -> None:
    alone = Herd(pickers=1, endpoints=8, requests_per_scrape=24, scrapes=2)
    assert simulate(alone, choices=choices).largest_share < simulate(HERD, choices=0).largest_share


def test_under_overload_too() -> None:
    compared, drawn = (simulate(HERD, choices=k, policy=OVERLOADED) for k in (0, 2))
    assert compared.largest_share > drawn.largest_share
    assert drawn.mean_batch < 1.1 * compared.mean_batch
