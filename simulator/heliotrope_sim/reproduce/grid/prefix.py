"""Beyond the paper: a session that moves leaves its cached prefix behind and computes its history again (paper, §7).

Three ways: sessions stay (the paper's), move freely, or move where the turn with its history computed again emits less
than staying. Round robin is taken to keep its sessions: its load is as even.
"""

from heliotrope.cache.costs import recompute
from heliotrope.carbon.bootstrap import Interval
from heliotrope.engine.profiles import load
from heliotrope_sim.reproduce.grid.curtailment import Floats
from heliotrope_sim.reproduce.grid.replay import OUTPUT_TOKENS, PROFILE
from heliotrope_sim.reproduce.grid.runs import Run, Sessions
from heliotrope_sim.reproduce.grid.settle import JOULES_PER_OUTPUT_TOKEN, TOKENS_PER_HOUR, hourly_grams
from heliotrope_sim.reproduce.grid.study import Arms, Part, Study
from heliotrope_sim.reproduce.plots import new_figure, png_base64, with_intervals
from heliotrope_sim.reproduce.report import Picture
from heliotrope_sim.reproduce.row import Row, percent_row

HISTORIES = (256.0, 700.0, 2_048.0, 8_192.0)
"""Tokens; 700 is near what the paper's sessions have behind them at their later turns (§4)."""


def recompute_ratio(history_tokens: float) -> float:
    """Energy of computing a history again, over that of a turn's answer."""
    return recompute(load(PROFILE), 0.0, history_tokens).joules / (OUTPUT_TOKENS * JOULES_PER_OUTPUT_TOKEN)


def _ways(arms: Arms, history: float) -> dict[Sessions, Run]:
    return {
        Sessions.STAY: arms.capped(),
        Sessions.FREE: arms.capped(sessions=Sessions.FREE),
        Sessions.PRICED: arms.capped(sessions=Sessions.PRICED, recompute_ratio=recompute_ratio(history)),
    }


def _runs(arms: Arms) -> tuple[Run, ...]:
    return tuple(run for history in HISTORIES for run in _ways(arms, history).values())


def charged(study: Study, run: Run, history: float) -> Interval:
    """The saving with what moved sessions compute again."""
    placed = study.placed[run]
    moved: Floats = placed.moved / run.cohorts * study.demand.total[:, None]
    again = moved * TOKENS_PER_HOUR * JOULES_PER_OUTPUT_TOKEN * recompute_ratio(history)
    rates = study.settled(run.credit).g_per_kwh
    grams = hourly_grams(study.joules(run) + again, rates)
    return study.saving(grams, study.grams(study.arms.round_robin(), run.credit))


def _rows(study: Study) -> list[Row]:
    rows = []
    for history in HISTORIES:
        found = {way: charged(study, run, history) for way, run in _ways(study.arms, history).items()}
        best = max(each.estimate for each in found.values())
        for way, each in found.items():
            priced = way is Sessions.PRICED
            rows.append(
                percent_row(
                    f"prefix/{history:g}/{way}",
                    f"Saved by cleanest-first, histories of {history:,.0f} tokens, sessions {way}",
                    None,
                    each,
                    holds=each.estimate >= best - 1e-9 if priced else None,
                    note="holds if no other way saves more" if priced else "",
                )
            )
    return rows


def _pictures(study: Study) -> list[Picture]:
    figure = new_figure()
    axes = figure.subplots()
    colours = {Sessions.STAY: "tab:gray", Sessions.FREE: "tab:red", Sessions.PRICED: "tab:green"}
    for way, colour in colours.items():
        found = [charged(study, _ways(study.arms, history)[way], history) for history in HISTORIES]
        with_intervals(axes, HISTORIES, found, color=colour, label=f"sessions {way}")
    axes.set(xlabel="history that a move computes again, tokens", ylabel="CO2 saved, %", xscale="log")
    axes.set_xticks(HISTORIES, [f"{history:,.0f}" for history in HISTORIES])
    axes.minorticks_off()
    axes.legend()
    note = "Capped cleanest-first; a move is charged with its history at the rate of where it goes."
    return [Picture("What lost prefixes cost", png_base64(figure), note, id="prefix")]


PREFIX = Part("prefix", _runs, _rows, _pictures)
