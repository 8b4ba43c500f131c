"""Figures of a demo run as the tables of docs/demo.md.

heliotrope demo && uv run python bench/demo_figures.py             # prints them
uv run python bench/demo_figures.py --write docs/demo.md           # puts them between the page's two marks
"""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- figures of bench/demo_figures.py -->", "<!-- end of figures -->"
ROWS = (
    ("failed", "failed", "{:d}", 1),
    ("SLO violations", "slo_violations", "{:d}", 1),
    ("energy, kJ", "joules", "{:.0f}", 1000),
    ("emissions, gCO2e", "grams_co2e", "{:.1f}", 1),
    ("TTFT p50, ms", "ttft_p50_ms", "{:.0f}", 1),
    ("TTFT p95, ms", "ttft_p95_ms", "{:.0f}", 1),
    ("TPOT p95, ms", "tpot_p95_ms", "{:.1f}", 1),
    ("prompt tokens found in caches, %", "cache_hit_share", "{:.0f}", 0.01),
    ("history computed again, tokens", "recomputed_prompt_tokens", "{:,d}", 1),
    ("later turns at another engine", "later_turns_elsewhere", "{:d}", 1),
)


def tables(summary: Mapping[str, Any]) -> str:
    """Both arms, and what each lever is worth if it was asked."""
    base, ours = summary["arms"]["round_robin"], summary["arms"]["heliotrope"]
    lines = ["| | round robin | Heliotrope |", "|---|---|---|"]
    for title, key, form, unit in ROWS:
        lines.append(f"| {title} | {_cell(base[key], form, unit)} | {_cell(ours[key], form, unit)} |")
    lines += [
        "",
        f"{1 - summary['ratio']['grams_co2e']:.0%} fewer grams, {1 - summary['ratio']['joules']:.0%} fewer joules.",
    ]
    late = max(entry["mean_step_lateness_ms"] for entry in summary["emulation"].values())
    lines[-1] += f" Emulated steps came at most {late:.1f} ms late on average of an arm."
    if "ablations" in summary:
        lines += ["", *_levers(summary["ablations"])]
    return "\n".join(lines)


def _levers(ablations: Mapping[str, Any]) -> list[str]:
    lines = [
        "| without | gCO2e lost | of the saving | kJ lost | cache hits | computed again, tokens | SLO violations |",
        "|---|---|---|---|---|---|---|",
    ]
    again = ablations["run_to_run"]
    entries = [*ablations["levers"].values(), *([] if again is None else [again["second_run"]])]
    for e in entries:
        share = "–" if e["share_of_grams_saved"] is None else f"{e['share_of_grams_saved']:+.0%}"
        lines.append(
            f"| {e['title']} | {e['grams_lost']:+.1f} | {share} | {e['joules_lost'] / 1000:+.0f} | "
            f"{_cell(e['cache_hit_share'], '{:.0%}', 1)} | {e['recomputed_prompt_tokens']:,d} | {e['slo_violations']} |"
        )
    if again is not None:
        grams, kilojoules = again["grams_difference"], again["joules_difference"] / 1000
        lines += ["", f"Two runs of the whole policy differed by {grams:.1f} g and {kilojoules:.0f} kJ."]
    return lines


def _cell(value: float | None, form: str, unit: float) -> str:
    if value is None:
        return "–"
    return form.format(value if unit == 1 else value / unit)


def main() -> None:
    """Print the tables, or put them into a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("summary", type=Path, nargs="?", default=Path("build/demo/summary.json"))
    parser.add_argument("--write", type=Path, help="the page")
    arguments = parser.parse_args()
    text = tables(json.loads(arguments.summary.read_text()))
    if arguments.write is None:
        print(text)
        return
    page = arguments.write.read_text()
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        parser.error(f"{arguments.write} has no '{BEGIN}' and '{END}'")
    arguments.write.write_text(f"{head}{BEGIN}\n\n{text}\n\n{END}{tail}")


if __name__ == "__main__":
    main()
