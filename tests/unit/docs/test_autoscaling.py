"""The page on autoscaling: every reason that a plan can give is explained there, and none that it cannot."""

import re
from pathlib import Path

from heliotrope.scale.plan import Reason
from heliotrope.scale.search import EXACT_CELLS

PAGE = (Path(__file__).parents[3] / "docs" / "autoscaling.md").read_text(encoding="utf-8")


def test_every_reason_is_explained_and_no_other() -> None:
    table = PAGE.split("## Reasons")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert sorted(name for row in rows for name in re.findall(r"`(\w+)`", row)) == sorted(r.value for r in Reason)


def test_the_size_of_small_parts_is_what_it_is() -> None:
    assert f"beyond {EXACT_CELLS} variant-steps" in PAGE
