"""A recorded decision as tables."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from heliotrope.cache.action import KvAction
from heliotrope.decide.recorded import Candidate, CarbonDecision, Profile, Recorded
from heliotrope_cli.explain_plans import phases
from heliotrope_cli.explain_text import why_lost
from heliotrope_cli.quantities import UNKNOWN, grams, intensity, joules, plain, seconds, shown, with_error

_ORDER = {True: 0, None: 1, False: 2}


def tables(record: Recorded) -> list[Table]:
    """Candidates, regions and, where no policy decided, scores."""
    decision = record.carbon_decision
    if decision is not None:
        return [candidate_table(decision), *([region_table(decision)] if decision.regions else [])]
    profiles = () if record.scheduling is None else record.scheduling.profiles
    return [score_table(profile, record.endpoint) for profile in profiles if profile.candidates]


def ranked(decision: CarbonDecision) -> Sequence[Candidate]:
    """The winner, then those that keep the constraints, then those that do not; each cleanest first."""

    def key(c: Candidate) -> tuple[bool, int, float, str]:
        cleanest = float("inf") if c.grams_co2e is None else c.grams_co2e
        return not c.chosen, _ORDER[c.within_constraints], cleanest, c.endpoint

    return sorted(decision.candidates, key=key)


def candidate_table(decision: CarbonDecision) -> Table:
    """One row per candidate; ± is one standard deviation."""
    with_action = any(c.kv_action not in (None, KvAction.RECOMPUTE) for c in decision.candidates)
    with_sources = any("learned" in c.sources.values() for c in decision.candidates)
    more = f", {decision.candidates_omitted} more not shown" if decision.candidates_omitted else ""
    table = Table(title=f"Candidates{more}")
    numbers = ("TTFT", "TPOT", "energy", "CO2e", "grid", "cost", "score", "cached")
    table.add_column("endpoint", overflow="fold")
    table.add_column("region", overflow="fold")
    if with_action:
        table.add_column("KV")
    for column in numbers:
        table.add_column(column, justify="right")
    if with_sources:
        table.add_column("learned")
    table.add_column("why", overflow="fold")
    for c in ranked(decision):
        cells = [
            phases(c.encode_endpoints, c.prefill_endpoint, c.endpoint),
            phases(c.encode_regions, c.prefill_region, c.region or UNKNOWN),
        ]
        if with_action:
            cells.append(shown(c.kv_action or UNKNOWN))
        cells += [
            with_error(seconds(c.ttft_seconds), c.ttft_relative_error),
            with_error(seconds(c.tpot_seconds), c.tpot_relative_error),
            with_error(joules(c.energy_joules), c.energy_relative_error),
            grams(c.grams_co2e),
            intensity(c.intensity_g_per_kwh),
            plain(c.cost),
            plain(c.base_score),
            plain(c.cached_tokens),
        ]
        if with_sources:
            cells.append(shown(", ".join(k for k, v in c.sources.items() if v == "learned") or "–"))
        cells.append(why_lost(c, decision))
        table.add_row(*map(Text, cells), style="bold" if c.chosen else None)
    return table


def region_table(decision: CarbonDecision) -> Table:
    """One row per region, as its signal was then."""
    table = Table(title="Carbon signals")
    for column in ("region", "grid", "freshness", "age", "type", "source", "estimated", "PUE"):
        table.add_column(column, overflow="fold")
    for r in decision.regions:
        estimated = {True: "yes", False: "no", None: UNKNOWN}[r.estimated]
        kind = " ".join(filter(None, (r.signal_type, r.emission_factor))) or UNKNOWN
        age = UNKNOWN if r.age_seconds is None else f"{r.age_seconds:,.0f} s"
        cells = (r.name, intensity(r.intensity_g_per_kwh), r.freshness, age, kind, r.source or UNKNOWN, estimated)
        table.add_row(*(Text(shown(cell)) for cell in cells), plain(r.pue))
    return table


def score_table(profile: Profile, endpoint: str | None) -> Table:
    """What each scorer gave each endpoint."""
    table = Table(title=Text(f"Scores of profile {shown(profile.profile)}"))
    table.add_column("endpoint", overflow="fold")
    table.add_column("score", justify="right")
    for name, weight in profile.weights.items():
        table.add_column(Text(f"{shown(name)} × {weight:g}"), justify="right")
    table.add_column("cached", justify="right")
    rows = sorted(profile.candidates, key=lambda c: (c.endpoint != endpoint, -(c.score or 0.0), c.endpoint))
    for c in rows:
        scores = (plain(c.scores.get(name)) for name in profile.weights)
        table.add_row(Text(shown(c.endpoint)), plain(c.score), *scores, plain(c.cached_tokens))
    return table
