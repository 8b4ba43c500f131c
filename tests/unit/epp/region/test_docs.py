"""docs/region-tier.md names every key, field and metric that there is."""

import re
from pathlib import Path

from prometheus_client.exposition import generate_latest
from tests.unit.epp.region.bench import Bench, policy

from heliotrope_epp.datalayer.region_state import VERSION, EngineStep, RegionLoad, StatePage
from heliotrope_epp.region import deadlines, feed
from heliotrope_epp.region.config import Deadlines, Polling, RegionEntry, RegionTierDocument

PAGE = (Path(__file__).parents[4] / "docs" / "region-tier.md").read_text(encoding="utf-8")


def test_every_key_of_the_file_is_described() -> None:
    keys = [f"regions[].{key}" for key in RegionEntry.key_names()]
    keys += [f"polling.{key}" for key in Polling.key_names()] + [f"deadlines.{key}" for key in Deadlines.key_names()]
    nested = ("apiVersion", "kind", "regions", "polling", "deadlines")
    keys += [key for key in RegionTierDocument.key_names() if key not in nested]
    table = set(re.findall(r"^\| `([^`]+)` \|", PAGE.split("## `regions.yaml`")[1].split("\n## ")[0], re.MULTILINE))
    assert table == set(keys)


def test_every_field_of_the_page_is_described() -> None:
    section = PAGE.split("## `/v1/state`")[1].split("\n## ")[0]
    for struct in (StatePage, RegionLoad, EngineStep):
        for field in struct.__struct_fields__:
            if (struct, field) != (StatePage, "regions"):
                assert re.search(rf"`(regions\[\]\.)?{field}`", section), field
    assert f"`version` is {VERSION};" in section


async def test_every_metric_is_described() -> None:
    bench = Bench({"a": 1.0, "b": 2.0}, carbon_policy=policy())
    bench.places(3)
    types = re.findall(r"^# TYPE (heliotrope_region_\w+) (counter|gauge|histogram)$", exposed(bench), re.MULTILINE)
    names = {name for name, _ in types if not name.endswith("_created")}
    described = set(re.findall(r"`(heliotrope_region_\w+)", PAGE.split("## Look into it")[1].split("\n## ")[0]))
    assert described == names


def exposed(bench: Bench) -> str:
    return generate_latest(bench.registry).decode()


def test_the_numbers_on_the_page_are_the_codes() -> None:
    assert f"fails {feed.FAILURES_BEFORE_PAUSE} requests in a row" in PAGE
    assert f"for {feed.FIRST_PAUSE_S:.0f} s, longer each time up to {feed.LONGEST_PAUSE_S:.0f} s" in PAGE
    assert f"less than {deadlines.LEAST_GAIN:.0%}".replace("%", " %") in PAGE
