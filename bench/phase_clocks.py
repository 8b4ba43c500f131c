"""What clocks per phase save over a day, and what a split of watts keeps under a cut.

    uv run python -m bench.phase_clocks [--quick] [--output build/bench/phase_clocks.json]

Prefill and decode engines serve a day of the Azure conversation trace whose rate follows the hours of a real day. Their
SM clocks are left alone, held at the one clock that is best for the day, moved together, or chosen per phase by
`heliotrope.power` as the operator does. Under a cut of 30 % of the fleet's watts the split over phases is compared with
one cap for every GPU. Beside the JSON lies a report with pictures.

How time and power follow the clock is the labelled model of the engine profiles (docs/engine-models.md), not a
measurement; so this says what is saved if that model holds. Hours last ten minutes, in which dwell times bind six
times as hard as in a day. Everything was chosen before the runs (`bench/clocks/setups.py`); equal seeds give equal
results on every machine.
"""

import argparse
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.clocks.anchors import anchors
from bench.clocks.report import CUT_ARMS, write
from bench.clocks.setups import FIRST_DAYS, PROMISES, REGION, capacity, typical_work
from bench.clocks.study import QUICK, Extent, study


def document(extent: Extent, processes: int) -> dict[str, Any]:
    """Everything that is written."""
    work = typical_work()
    return {
        "model": "labelled DVFS model of the shipped engine profiles; no GPU was measured",
        "chosen_before": {
            "trace": "Azure LLM inference 2023, conversations",
            "mean_prompt_tokens": round(work.prompt_tokens, 1),
            "mean_output_tokens": round(work.output_tokens, 1),
            "hours_of": f"{REGION}, data/casper, days {list(FIRST_DAYS)} of the series",
            "hour_seconds": extent.hour_seconds,
            "seeds": list(extent.seeds),
            "promises": {
                each.name: {
                    "ttft_seconds": each.promise.ttft_seconds,
                    "tpot_seconds": each.promise.tpot_seconds,
                    "source": each.source,
                }
                for each in extent.promises
            },
            "peak_is_a_share_of_requests_per_second": {
                fleet.name: round(capacity(fleet, work, PROMISES[0].promise), 3) for fleet in extent.fleets
            },
        },
        "anchors": anchors(),
        **study(extent, processes=processes, progress=_progress),
    }


def _progress(done: int, of: int) -> None:
    sys.stderr.write(f"\r{done}/{of} days " + ("\n" if done == of else ""))
    sys.stderr.flush()


def _table(found: dict[str, Any]) -> str:
    lines = [
        f"{'fleet':22} {'load':>5} {'promise':12} {'alone':>7} {'held':>7} {'moving':>7}  missed: alone, per phase"
    ]
    for case in found["cases"]:
        saved = {name: f"{each['percent']['mean']:6.1f}%" for name, each in case["saved_by_per_phase"].items()}
        missed = [
            sum(case["arms"][arm]["missed"]) / len(case["arms"][arm]["missed"]) for arm in ("left_alone", "per_phase")
        ]
        lines.append(
            f"{case['fleet']:22} {case['load']:5.0%} {case['promise']:12} {saved['left_alone']:>7} "
            f"{saved['one_held']:>7} {saved.get('one_moving', '-'):>7}  {missed[0]:8.2%} {missed[1]:8.2%}"
        )
    lines.append(f"\n{'under a cut: % within the promise':41} " + " ".join(f"{name:>20}" for name in CUT_ARMS))
    for cut in found["cuts"]:
        kept = " ".join(f"{cut['kept_percent'][name]['mean']:19.2f}%" for name in CUT_ARMS)
        lines.append(f"{cut['fleet']:22} {cut['load']:5.0%} {cut['promise']:12} {kept}")
    return "\n".join(lines)


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one fleet, one load, one seed, hours of a minute")
    parser.add_argument("--hour-seconds", type=float, help="how long an hour lasts; 3600: as it does, for long runs")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--output", type=Path, default=Path("build/bench/phase_clocks.json"))
    arguments = parser.parse_args()
    extent = QUICK if arguments.quick else Extent()
    if arguments.hour_seconds is not None:
        extent = replace(extent, hour_seconds=arguments.hour_seconds)
    found = document(extent, arguments.processes)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps({"quick": arguments.quick, **found}, indent=1) + "\n", encoding="utf-8")
    page = write(arguments.output.with_suffix(".html"), found)
    print(_table(found))
    print(f"wrote {arguments.output} and {page}")


if __name__ == "__main__":
    main()
