"""Rows of the groups by turns (§4.3) and of the ablations (§4.4)."""

from heliotrope_sim.reproduce.context.gates import Trained
from heliotrope_sim.reproduce.context.measures import change, p95_ttft_seconds, reversed_share, saving
from heliotrope_sim.reproduce.context.overall import WITHOUT_GATE, WITHOUT_PRICING, Compared
from heliotrope_sim.reproduce.context.policies import CCAR, FAIR_CARBON
from heliotrope_sim.reproduce.row import PERCENT, Row, above_zero, percent_row

PAPER_GROUPS = {5: 15.3, 10: 16.6, 20: 19.8, 30: 23.1}
MIN_SESSIONS = 30
"""Smaller groups are reported and not judged."""


def group_rows(c: Compared) -> list[Row]:
    """The saving against FairCarbon-like by the length of sessions, and its trend."""
    rows, values = [], []
    for turns, paper in PAPER_GROUPS.items():
        sessions = c.ground.longer_than(turns)
        found = saving(c.ground, c.arms[CCAR], c.arms[FAIR_CARBON], c.seed, sessions)
        enough = int(sessions.sum()) >= MIN_SESSIONS
        values.append(found.estimate)
        rows.append(
            percent_row(
                f"turns/{c.name}/over-{turns}",
                f"CO2 saved against FairCarbon-like, sessions over {turns} turns",
                paper,
                found,
                holds=above_zero(found, quick=c.quick) if enough else None,
                note=f"{int(sessions.sum())} sessions; holds if positive",
            )
        )
    rows.append(
        Row(
            f"turns/{c.name}/trend",
            "The saving grows with the number of turns",
            "15.3 < 16.6 < 19.8 < 23.1",
            " , ".join(f"{v * PERCENT:.1f}" for v in values),
            "%",
            bool(values[-1] > values[0]),
            "holds if sessions over 30 turns save more than those over 5",
        )
    )
    return rows


def ablation_rows(c: Compared, trained: Trained) -> list[Row]:
    """What pricing and the gate are worth (table 2); `trained` says how often staying would have paid."""
    pricing, gate = (
        change(c.ground, c.arms[p].grams_co2e, c.arms[CCAR].grams_co2e, c.seed) for p in (WITHOUT_PRICING, WITHOUT_GATE)
    )
    slower = p95_ttft_seconds(c.arms[WITHOUT_GATE]) / p95_ttft_seconds(c.arms[CCAR]) - 1.0
    kept = float(c.arms[CCAR].kept.sum()) / c.ground.sessions
    long = c.ground.longer_than(30)
    gate_long = change(c.ground, c.arms[WITHOUT_GATE].grams_co2e, c.arms[CCAR].grams_co2e, c.seed, long)
    back = reversed_share(c.ground, c.arms[WITHOUT_GATE])
    small = (
        f"the gate keeps {kept:.2f} switches per session, 0.7 in the paper; in training staying emitted less at "
        f"{trained.staying_pays:.0%} of the switches that a gate may stop; {back:.0%} of all are reversed at once"
    )
    return [
        percent_row(
            "ablation/without-pricing",
            "CO2 without pricing",
            8.9,
            pricing,
            holds=above_zero(pricing, quick=c.quick),
            note="holds if above 0; its gate is trained on its own proposals",
        ),
        percent_row(
            "ablation/without-gate",
            "CO2 without the gate",
            3.5,
            gate,
            holds=above_zero(gate, quick=c.quick),
            note=f"holds if above 0; {small}",
        ),
        percent_row(
            "ablation/without-gate-over-30",
            "CO2 without the gate, sessions over 30 turns",
            7.3,
            gate_long,
            holds=None if int(long.sum()) < MIN_SESSIONS else above_zero(gate_long, quick=c.quick),
            note=f"holds if above 0; {small}",
        ),
        Row(
            "ablation/without-gate-ttft",
            "P95 TTFT without the gate",
            71.4,
            slower * PERCENT,
            "%",
            slower > 0.0,
            f"holds if above 0; {small}",
        ),
        Row(
            "ablation/order",
            "Pricing is worth more carbon than the gate",
            "8.9 > 3.5",
            f"{pricing.estimate * PERCENT:.1f} , {gate.estimate * PERCENT:.1f}",
            "%",
            pricing.estimate > gate.estimate,
            "holds if it is; each is taken away while the other stays",
        ),
        Row("ablation/kept", "Switches that the gate stops, per session", 0.7, kept, "", None, "reported"),
    ]
