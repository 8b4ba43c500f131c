"""`heliotrope reproduce context-is-not-free`, from settings to the report."""

from collections.abc import Sequence

from heliotrope_sim.reproduce.context.ablations import ablation_rows, group_rows
from heliotrope_sim.reproduce.context.analytic import analytic_rows, length_rows
from heliotrope_sim.reproduce.context.beyond import crossover_sheet, queue_rows, transfer_rows
from heliotrope_sim.reproduce.context.causes import cause_rows
from heliotrope_sim.reproduce.context.gates import Trained, train
from heliotrope_sim.reproduce.context.measures import Arm, Ground
from heliotrope_sim.reproduce.context.overall import (
    WITHOUT_GATE,
    WITHOUT_PRICING,
    Compared,
    mechanism_rows,
    saving_rows,
    sheet,
)
from heliotrope_sim.reproduce.context.pictures import pictures
from heliotrope_sim.reproduce.context.plan import plan
from heliotrope_sim.reproduce.context.policies import CCAR, POLICIES
from heliotrope_sim.reproduce.context.sensitivity import sensitivity_rows, sensitivity_sheets, sweep
from heliotrope_sim.reproduce.context.tasks import Run, Stretch, play
from heliotrope_sim.reproduce.experiment import Experiment, Settings
from heliotrope_sim.reproduce.report import Report, Sheet
from heliotrope_sim.reproduce.row import PERCENT
from heliotrope_sim.reproduce.workers import Workers

TITLE = "Context is not free (Zhang et al., arXiv:2610.35230): paper and ours"
SUBSTITUTES = (
    "Sessions: ShareGPT and ShareChat cannot be shipped. Ours are drawn, with the shares of long histories of §2.2.",
    "Mooncake: an hour of real conversations of Kimi, put at twelve hours of 2022; few of them have many turns.",
    "Quality: the R2-Router's predictors are replaced by drawn qualities of the five models.",
    "Carbon intensity: Electricity Maps, hourly, 2022, where the paper has five minutes of 2025.",
    "Output lengths: the router sees the realised length with a log-normal error of 0.4; every model writes as much.",
    "GAR-like and FairCarbon-like are the paper's adaptations; a session's region under GAR-like is drawn.",
)


def run(settings: Settings, workers: Workers) -> Report:
    """Train and validate the gates, replay every policy, sweep, go beyond."""
    sizes, seed = plan(settings), settings.seed
    priced = train(sizes.training, sizes.held_out, sizes.branched_share, seed, workers)
    unpriced = train(sizes.training, sizes.held_out, sizes.branched_share, seed, workers, priced=False)
    gate_text = priced.gate.to_text()
    sessions = _compare("sessions", "generated sessions", sizes.compared, (priced, unpriced), settings, workers)
    mooncake = _compare("mooncake", "Mooncake", sizes.mooncake, (priced, unpriced), settings, workers)
    grid = sweep(sizes.compared, gate_text, seed, workers)
    half = sizes.compared[: max(len(sizes.compared) // 2, 1)]
    base = Arm.of(workers.map("beyond: without pulling", play, [Run(s, CCAR, gate_text=gate_text) for s in half]))
    pulls, pull_sheet = transfer_rows(half, base, gate_text, seed, workers)
    queues = queue_rows(half, "sessions", gate_text, seed, workers)
    queues += queue_rows(sizes.mooncake[:2], "mooncake", gate_text, seed, workers)
    rows = [
        *analytic_rows(),
        *length_rows(sessions.ground),
        *saving_rows(sessions, "paper: mean of ShareChat and ShareGPT"),
        *saving_rows(mooncake, "paper: mean of ShareChat and ShareGPT, whose sessions have more turns"),
        *mechanism_rows(sessions),
        *cause_rows(sessions, sizes.compared),
        *group_rows(sessions),
        *ablation_rows(sessions, priced),
        *sensitivity_rows(grid, quick=settings.quick),
        *pulls,
        *queues,
    ]
    return Report(
        experiment=CONTEXT_IS_NOT_FREE.name,
        title=TITLE,
        seed=seed,
        quick=settings.quick,
        substitutes=SUBSTITUTES,
        rows=tuple(rows),
        sheets=(
            sheet(sessions),
            sheet(mooncake),
            *sensitivity_sheets(grid),
            _gate_sheet(priced, unpriced),
            crossover_sheet(),
            pull_sheet,
        ),
        pictures=pictures(sessions, mooncake),
    )


def _compare(
    name: str,
    title: str,
    stretches: Sequence[Stretch],
    trained: tuple[Trained, Trained],
    settings: Settings,
    workers: Workers,
) -> Compared:
    priced, unpriced = (each.gate.to_text() for each in trained)
    kinds: dict[str, tuple[str, str, bool]] = {policy: (policy, "", True) for policy in POLICIES}
    kinds[CCAR] = (CCAR, priced, True)
    kinds[WITHOUT_GATE] = (CCAR, "", True)
    kinds[WITHOUT_PRICING] = (CCAR, unpriced, False)
    runs = [
        Run(s, policy, gate_text=text, priced=charged) for policy, text, charged in kinds.values() for s in stretches
    ]
    logs = workers.map(f"policies, {title}", play, runs)
    n = len(stretches)
    arms = {kind: Arm.of(logs[i * n : (i + 1) * n]) for i, kind in enumerate(kinds)}
    return Compared(name, title, Ground.of(stretches), arms, settings.seed, settings.quick)


def _gate_sheet(priced: Trained, unpriced: Trained) -> Sheet:
    rows = []
    for name, trained in (("with pricing", priced), ("without pricing", unpriced)):
        changes = ", ".join(
            f"δ {delta:g}: {found.estimate * PERCENT:+.1f} % [{found.low * PERCENT:.1f}, {found.high * PERCENT:.1f}]"
            for delta, found in trained.change.items()
        )
        gate = trained.gate
        rows.append(
            (
                name,
                f"{gate.trained_on:,}",
                f"{trained.staying_pays:.0%}",
                f"{gate.validated_on:,}",
                f"{gate.threshold:g}",
                changes,
            )
        )
    return Sheet(
        "Gates: δ chosen on held-out sessions",
        ("proposal", "switches branched", "staying paid", "held-out sessions", "δ", "CO2 against no gate"),
        tuple(rows),
        "δ is what staying must save over two turns, as a share of both choices' estimates; inf: no gate.",
    )


CONTEXT_IS_NOT_FREE = Experiment(
    name="context-is-not-free",
    source="Zhang et al., Context Is Not Free: Carbon-Aware LLM Routing for Multi-Turn LLM Web Services (2026)",
    run=run,
)
