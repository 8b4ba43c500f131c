"""The plots of the report, after the paper's figures 2(c), 4(a) and 5(a), and what goes beyond."""

import numpy as np

from heliotrope_sim.reproduce.context.ablations import PAPER_GROUPS
from heliotrope_sim.reproduce.context.analytic import break_even_curve
from heliotrope_sim.reproduce.context.beyond import NETWORK_JOULES_PER_BIT, break_even_with_pull, wan
from heliotrope_sim.reproduce.context.measures import change, saving
from heliotrope_sim.reproduce.context.overall import (
    PAPER_ORDER,
    WITHOUT_GATE,
    WITHOUT_PRICING,
    Compared,
)
from heliotrope_sim.reproduce.context.policies import CCAR, FAIR_CARBON, SESSION_AFFINITY
from heliotrope_sim.reproduce.context.profiles import MODELS
from heliotrope_sim.reproduce.plots import new_figure, png_base64, with_intervals
from heliotrope_sim.reproduce.report import Picture

PAPER_RELATIVE = {
    "Session-Affinity": 1.0,
    "Carbon-Affinity": 0.581,
    "GAR-like": 0.645,
    "FairCarbon-like": 0.545,
    CCAR: 0.457,
}
"""Table 1, mean of its two data sets."""
LONGEST_HISTORY = 16_384


def pictures(sessions: Compared, mooncake: Compared) -> tuple[Picture, ...]:
    """All of them."""
    return (_policies(sessions, mooncake), _groups(sessions), _ablations(sessions), _break_even())


def _policies(*compared: Compared) -> Picture:
    figure = new_figure()
    axes = figure.subplots()
    x = np.arange(len(PAPER_ORDER))
    axes.bar(x - 0.27, [PAPER_RELATIVE[p] for p in PAPER_ORDER], 0.26, label="paper", color="tab:gray")
    for i, c in enumerate(compared):
        values = [c.grams(p) / c.grams(SESSION_AFFINITY) for p in PAPER_ORDER]
        axes.bar(x + 0.27 * i, values, 0.26, label=c.title)
    axes.set_xticks(x, PAPER_ORDER)
    axes.set_ylabel("CO2 over Session-Affinity's")
    axes.legend()
    return Picture("Emissions by policy", png_base64(figure), "Table 1 of the paper: mean of ShareChat and ShareGPT.")


def _groups(c: Compared) -> Picture:
    found = [saving(c.ground, c.arms[CCAR], c.arms[FAIR_CARBON], c.seed, c.ground.longer_than(n)) for n in PAPER_GROUPS]
    figure = new_figure()
    axes = figure.subplots()
    names = [f">{n}" for n in PAPER_GROUPS]
    axes.plot(names, list(PAPER_GROUPS.values()), "o--", color="tab:gray", label="paper")
    with_intervals(axes, names, found, label="ours")
    axes.set(xlabel="turns per session", ylabel="CO2 saved against FairCarbon, %")
    axes.set_ylim(bottom=0.0)
    axes.legend()
    return Picture("The longer the session, the larger the saving", png_base64(figure), "Figure 4(a) of the paper.")


def _ablations(c: Compared) -> Picture:
    figure = new_figure()
    axes = figure.subplots()
    groups = {"all": 0, ">10": 10, ">20": 20, ">30": 30}
    for name in (WITHOUT_PRICING, WITHOUT_GATE):
        found = [
            change(c.ground, c.arms[name].grams_co2e, c.arms[CCAR].grams_co2e, c.seed, c.ground.longer_than(n))
            for n in groups.values()
        ]
        with_intervals(axes, list(groups), found, label=name)
    axes.axhline(0.0, color="black", linewidth=0.8)
    axes.set(xlabel="turns per session", ylabel="CO2 more than CCAR, %")
    axes.legend()
    return Picture("What pricing and the gate are worth", png_base64(figure), "Figure 5(a) of the paper.")


def _break_even() -> Picture:
    histories = np.linspace(1.0, LONGEST_HISTORY, 200)
    figure = new_figure(11.0)
    for axes, model in zip(figure.subplots(1, 2, sharey=True), (3, 4), strict=True):
        axes.plot(histories, break_even_curve(histories.tolist()), color="black", label="recompute (paper)")
        for joules in NETWORK_JOULES_PER_BIT:
            curve = [break_even_with_pull(model, h, wan(joules)) for h in histories.tolist()]
            axes.plot(histories, curve, label=f"pull, {joules * 1e9:g} nJ/bit")
        axes.set(title=f"{MODELS[model].name} on A100", xlabel="history, tokens", ylim=(0.0, 1.0))
    figure.axes[0].set_ylabel("break-even CI_B / CI_A")
    figure.axes[1].legend()
    note = "Figure 2(c) of the paper, and the same with the history pulled over the network. Below a curve a move pays."
    return Picture("Break-even of a move: recompute or pull", png_base64(figure), note)
