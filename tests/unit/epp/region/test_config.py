"""The region tier's file: defaults, and the key of every mistake."""

from pathlib import Path

import pytest

from heliotrope.errors import InvalidInputError
from heliotrope_epp.region.config import PollMode, WhenFull, read

HEAD = "apiVersion: heliotrope.io/v1alpha1\nkind: RegionTier\n"
ES = "  - {name: es, stateUrls: [http://10.0.0.1:9090/v1/state]}\n"


def test_a_short_file_has_defaults() -> None:
    tier = read(f"{HEAD}regions:\n{ES}")
    assert tier.names == ("es",)
    assert (tier.region_header, tier.schedulers, tier.home_region) == ("x-heliotrope-region", 1, None)
    assert (tier.polling.interval, tier.polling.timeout, tier.polling.lost_after_polls) == (1.0, 0.5, 3)
    assert (tier.poll_mode, tier.when_full) == (PollMode.STAGGERED, WhenFull.PLACE)
    assert (tier.deadlines.max_requests, tier.deadlines.longest_wait) == (1000, 600.0)


def test_everything_can_be_set(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_text("")
    tier = read(
        f"""{HEAD}homeRegion: es
regionHeader: x-region
schedulers: 3
windowsKept: 5
polling: {{interval: 500ms, timeout: 100ms, mode: Synchronous, lostAfterPolls: 2, longestInterval: 2s}}
deadlines: {{maxRequests: 7, longestWait: 1h, whenFull: Refuse}}
regions:
  - name: es
    stateUrls: [https://es.example/v1/state, https://es2.example/v1/state]
    stateRegion: spain
    caFile: {ca}
    dispatch: 20ms
    batchCapacity: 64
"""
    )
    region = tier.regions[0]
    assert (region.state_region, region.dispatch, region.batch_capacity) == ("spain", 0.02, 64)
    assert (tier.poll_mode, tier.when_full, tier.schedulers) == (PollMode.SYNCHRONOUS, WhenFull.REFUSE, 3)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("", "apiVersion"),
        (f"{HEAD}regions: []\n", "regions"),
        (f"{HEAD}regions:\n{ES}{ES}", r"regions\[1\].name"),
        (f"{HEAD}regions:\n  - {{name: ES, stateUrls: [http://a]}}\n", r"regions\[0\].name"),
        (f"{HEAD}regions:\n  - {{name: es}}\n", r"regions\[0\].stateUrls"),
        (f"{HEAD}regions:\n  - {{name: es, stateUrls: [ftp://a]}}\n", r"regions\[0\].stateUrls\[0\]"),
        (f"{HEAD}regions:\n  - {{name: es, stateUrls: [http://a], caFile: /nowhere}}\n", r"regions\[0\].caFile"),
        (f"{HEAD}regions:\n  - {{name: es, stateUrls: [http://a], adress: x}}\n", r"regions\[0\].adress"),
        (f"{HEAD}polling: {{interval: 100ms, timeout: 1s}}\nregions:\n{ES}", "polling.timeout"),
        (f"{HEAD}polling: {{interval: 10s}}\nregions:\n{ES}", "polling.longestInterval"),
        (f"{HEAD}polling: {{interval: fast}}\nregions:\n{ES}", "polling.interval"),
        (f"{HEAD}polling: {{mode: Sometimes}}\nregions:\n{ES}", "polling.mode"),
        (f"{HEAD}deadlines: {{maxRequests: -1}}\nregions:\n{ES}", "deadlines.maxRequests"),
        (f"{HEAD}schedulers: 0\nregions:\n{ES}", "schedulers"),
        (f"{HEAD}regionHeader: X Y\nregions:\n{ES}", "regionHeader"),
        (f"apiVersion: v1\nkind: RegionTier\nregions:\n{ES}", "apiVersion"),
        (f"{HEAD}regions: [", "line 3"),
    ],
)
def test_a_mistake_is_told_with_its_key(text: str, path: str) -> None:
    with pytest.raises(InvalidInputError, match=path):
        read(text)
