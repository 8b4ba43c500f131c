"""The demo's HTML report: one file, no scripts, nothing loaded from elsewhere."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from heliotrope.units import joules_from_millijoules
from heliotrope_sim.demo import plots
from heliotrope_sim.demo.arm import ArmState
from heliotrope_sim.demo.conservation import Conservation
from heliotrope_sim.demo.scenario import Scenario
from heliotrope_sim.demo.table import lever_entries

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#20242a;background:#fff}
h1{font-size:1.7rem;margin-bottom:.2rem}h2{font-size:1.15rem;margin-top:2.2rem}
.lead{font-size:1.05rem}.big{font-size:2.2rem;font-weight:650;color:#c9721b}
table{border-collapse:collapse;margin:.8rem 0}
td,th{padding:.3rem .8rem;border-bottom:1px solid #e3e6ea;text-align:right}
td:first-child,th:first-child{text-align:left}th{font-weight:600}small,.note{color:#606872}svg{width:100%;height:auto}
"""

_ROWS = (
    ("requests", "requests", 1, 0),
    ("failed", "failed", 1, 0),
    ("SLO violations", "slo_violations", 1, 0),
    ("energy, kJ (accelerators and hosts)", "joules", 1000, 0),
    ("emissions, gCO2e", "grams_co2e", 1, 2),
    ("TTFT p50, ms", "ttft_p50_ms", 1, 0),
    ("TTFT p95, ms", "ttft_p95_ms", 1, 0),
    ("TPOT p95, ms", "tpot_p95_ms", 1, 1),
    ("mean batch / batch limit", "mean_batch_share", 1, 2),
    ("prompt tokens found in caches, %", "cache_hit_share", 0.01, 0),
    ("history computed again, tokens", "recomputed_prompt_tokens", 1, 0),
    ("later turns at another engine than the turn before", "later_turns_elsewhere", 1, 0),
)


_ERROR_COLUMNS = (("median", ".1%"), ("mean", ".1%"), ("total", "+.1%"))


def html(played: Sequence[ArmState], scenario: Scenario, result: Mapping[str, Any]) -> str:
    """The whole page; arms without a lever are in the section on levers alone."""
    states = [state for state in played if state.arm.without is None]
    ratio = result.get("ratio", {}).get("grams_co2e")
    head = ""
    if ratio is not None:
        head = (
            f'<p class="lead"><span class="big">{1 - ratio:.0%}</span> less CO2e than round robin on the same requests '
            f"({result['arms']['heliotrope']['grams_co2e']:.1f} g against "
            f"{result['arms']['round_robin']['grams_co2e']:.1f} g), with "
            f"{result['arms']['heliotrope']['slo_violations']} against "
            f"{result['arms']['round_robin']['slo_violations']} SLO violations. The saving is "
            f"{escape(result['accounting']['savings'])}.</p>"
        )
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>Heliotrope demo</title>",
        f"<style>{_STYLE}</style><h1>Heliotrope demo</h1>",
        head,
        _set_up(scenario, result),
        "<h2>Both arms</h2>",
        _table(("", *(s.arm.title for s in states)), _figure_rows(states, result)),
        _levers(result["ablations"]) if "ablations" in result else "",
        "<h2>Grids, and where the load was</h2>",
        plots.load_over_time(states, scenario),
        "<h2>Carbon by arm and region</h2>",
        plots.carbon_over_time(states, scenario),
        _table(("", *_region_heads(states)), _region_rows(states, scenario, result)),
        "<h2>Time to first token</h2>",
        plots.ttft_distributions(states, scenario),
        *(_joules(s, scenario, result) for s in states if s.joules),
        *(_why(result["reasons"][s.arm.key]) for s in states if s.arm.key in result["reasons"]),
        _accounting(result),
    ]
    return "\n".join(parts)


def _set_up(scenario: Scenario, result: Mapping[str, Any]) -> str:
    facts = result["scenario"]
    return (
        f"<p>{facts['engines']} emulated engines ({escape(scenario.profile)}, at most {scenario.max_num_seqs} "
        f"sequences each) in {len(scenario.regions)} regions behind a real Envoy. A stretch of the Azure LLM "
        f"conversation trace (CC-BY-4.0) and, for {scenario.talks.share:.0%} of the requests, turns of conversations "
        f"of the Mooncake trace (Apache-2.0; prompts × {scenario.talks.prompt_scale:g}, answers × "
        f"{scenario.talks.answer_scale:g}, pauses × {scenario.talks.pause_scale:g}), each after the answer before it "
        f"and with all of its history, arrive at "
        f"{facts['offered_requests_per_second']:.1f} requests per second: {scenario.load:.0%} "
        f"of what the fleet completes when saturated ({facts['capacity_requests_per_second']:.1f}/s); one region alone "
        f"completes {facts['cleanest_region_capacity_requests_per_second']:.1f}/s. Promise: TTFT "
        f"{facts['ttft_slo_ms']:.0f} ms, TPOT {facts['tpot_slo_ms']:.0f} ms. Network delay between regions is not "
        f"emulated.</p>"
    )


def _figure_rows(states: Sequence[ArmState], result: Mapping[str, Any]) -> list[tuple[str, ...]]:
    rows = []
    for title, key, divisor, digits in _ROWS:
        values = [result["arms"][s.arm.key][key] for s in states]
        rows.append((title, *("–" if v is None else f"{v / divisor:,.{digits}f}" for v in values)))
    return rows


def _levers(ablations: Mapping[str, Any]) -> str:
    rows = [
        (
            entry["title"],
            f"{entry['grams_lost']:+,.1f}",
            "–" if entry["share_of_grams_saved"] is None else f"{entry['share_of_grams_saved']:+.0%}",
            f"{entry['joules_lost'] / 1000:+,.0f}",
            "–" if entry["cache_hit_share"] is None else f"{entry['cache_hit_share']:.0%}",
            f"{entry['recomputed_prompt_tokens']:,}",
            f"{entry['later_turns_elsewhere']}",
            f"{entry['slo_violations']}",
        )
        for entry in lever_entries(ablations)
    ]
    head = (
        "without",
        "gCO2e lost",
        "of the saving",
        "kJ lost",
        "cache hits",
        "computed again, tokens",
        "turns elsewhere",
        "SLO violations",
    )
    how = "; ".join(f"{escape(e['title'])}: <code>{escape(e['how'])}</code>" for e in ablations["levers"].values())
    again = ablations["run_to_run"]
    noise = (
        "How far two equal runs differ was not measured."
        if again is None
        else f"Two runs of the whole policy differed by {again['grams_difference']:.1f} g and "
        f"{again['joules_difference'] / 1000:,.0f} kJ (grey in the plot). That is one draw: "
        "other pairs may differ by more, so what is lost without a lever says little unless it is well above."
    )
    return (
        "<h2>What each lever is worth</h2><p>Heliotrope once more for each lever, on the same requests, with a policy "
        f"that does without it ({how}). What is lost is how much more such an arm emits and draws than Heliotrope with "
        f"all of them; the whole saving against round robin is {ablations['grams_saved']:,.1f} g and "
        f"{ablations['joules_saved'] / 1000:,.0f} kJ.</p>"
        + _table(head, rows)
        + (plots.levers(ablations) if ablations["levers"] else "")
        + f'<p class="note">{escape(ablations["caveat"])} {escape(noise)}</p>'
    )


def _region_heads(states: Sequence[ArmState]) -> list[str]:
    return [f"{s.arm.title}: {what}" for s in states for what in ("requests", "kJ", "gCO2e", "batch share")]


def _region_rows(states: Sequence[ArmState], scenario: Scenario, result: Mapping[str, Any]) -> list[tuple[str, ...]]:
    rows = []
    for region in scenario.regions:
        cells = [region.name]
        for state in states:
            r = result["arms"][state.arm.key]["regions"][region.name]
            joules = r["accelerator_joules"] + r["host_joules"]
            cells += [
                f"{r['requests']}",
                f"{joules / 1000:,.0f}",
                f"{r['grams_co2e']:.1f}",
                f"{r['mean_batch_share']:.2f}",
            ]
        rows.append(tuple(cells))
    return rows


def _joules(state: ArmState, scenario: Scenario, result: Mapping[str, Any]) -> str:
    errors = result["joules_per_request"][state.arm.key]
    rows = [
        (
            title,
            f"{entry['requests']}",
            *("–" if entry[key] is None else f"{entry[key]:{form}}" for key, form in _ERROR_COLUMNS),
        )
        for title, entry in (
            ("estimated by the decision, against measured", errors["estimated_against_attributed"]),
            ("measured by the picker, against true", errors["attributed_against_true"]),
        )
    ]
    books = state.conservation
    kept = "" if books is None else _books(books)
    return (
        "<h2>Joules of each request</h2><p>The accelerators' energy, split over the requests by their work; idle and "
        "host energy are accounted beside it.</p>"
        + plots.joules_per_request(state.joules, scenario)
        + _table(("", "requests", "median error", "mean error", "error of the sum"), rows)
        + kept
    )


def _books(books: Conservation) -> str:
    cells = [f"{joules_from_millijoules(float(value)):,.3f}" for value in (books.counted, *books.lines.values())]
    return (
        "<p>The picker's books over the whole run, in joules: between its first and last reading of each engine the "
        "counters rose by the first number, and the others are what became of it. They differ by "
        f"<b>{books.difference} mJ</b>.</p>"
        + _table(("counters rose by", "its requests", "others' requests", "idle", "nobody's"), [cells])
    )


def _why(reasons: Mapping[str, Mapping[str, Any]]) -> str:
    decided = [
        (region, term, str(count))
        for region, counts in reasons["decided_by"].items()
        for term, count in sorted(counts.items(), key=lambda item: -item[1])
    ]
    passed = [
        (region, reason, str(count))
        for region, counts in reasons["cleaner_region_passed_over_because"].items()
        for reason, count in sorted(counts.items(), key=lambda item: -item[1])
    ]
    text = "<h2>Where requests went, and why</h2><p>What decided between the plans that hold the SLO:</p>"
    text += _table(("sent to", "decided by", "requests"), decided)
    if passed:
        text += "<p>When a request went to a region that was not the cleanest, why the cleaner one was passed over:</p>"
        text += _table(("cleaner region", "its engines lost because", "requests"), passed)
    actions = sorted(reasons["kv_actions"].items(), key=lambda item: -item[1])
    text += "<p>Where the KV cache of prompts was expected to come from:</p>"
    text += _table(("action", "requests"), [(action, str(count)) for action, count in actions])
    return text


def _accounting(result: Mapping[str, Any]) -> str:
    facts = result["accounting"]
    pue = ", ".join(f"{name} {value:g}" for name, value in result["scenario"]["pue"].items())
    return (
        f'<h2>How this is counted</h2><p class="note">Boundary: {escape(facts["boundary"])}. Signal: '
        f"{escape(facts['signal'])}. Source: {escape(facts['source'])}. PUE: {escape(pue)}. Savings: "
        f"{escape(facts['savings'])}. All arms are counted over the same "
        f"{result['scenario']['horizon_seconds']:.0f} s. "
        f"Contains information from Electricity Maps, made available under the Open Database License (ODbL) v1.0.</p>"
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{top}</tr>{body}</table>"
