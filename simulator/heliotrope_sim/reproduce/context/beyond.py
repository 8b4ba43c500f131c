"""What the paper leaves out (its §6): waiting for a replica, and pulling a session's KV from where it is.

Pulling is the third choice beside staying and recomputing. Whether it changes the answer depends on what a bit costs on
its way between regions, on which published figures differ by two orders of magnitude: so that is swept, and where the
answer turns is computed per model.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from heliotrope.cache.ccar import TokenRatios
from heliotrope.cache.costs import transfer
from heliotrope.cache.links import DEFAULT_LINKS, Link, LinkClass
from heliotrope.units import bits_from_bytes
from heliotrope_sim.reproduce.context.analytic import NEW_TOKENS, OUTPUT_TOKENS
from heliotrope_sim.reproduce.context.measures import Arm, Ground, change, p95_ttft_seconds, recomputed_share, saving
from heliotrope_sim.reproduce.context.policies import CCAR, FAIR_CARBON
from heliotrope_sim.reproduce.context.profiles import GPUS, MODELS, profile
from heliotrope_sim.reproduce.context.system import System, Transfers
from heliotrope_sim.reproduce.context.tasks import Run, Stretch, play
from heliotrope_sim.reproduce.report import Sheet
from heliotrope_sim.reproduce.row import PERCENT, Row, percent_row
from heliotrope_sim.reproduce.workers import Workers

WAN = DEFAULT_LINKS[LinkClass.WAN]
NETWORK_JOULES_PER_BIT = (2e-9, 1e-8, WAN.network_joules_per_bit, 2e-7)
BYTES_PER_SECOND = (1.25e8, WAN.bytes_per_second, 1.25e10)
"""1, 10 and 100 Gbit/s for one pull."""
SESSIONS_PER_REPLICA = (16.0, 64.0)
"""16: what κ = 6 implies as a batch (appendix A: 5 to 17 sequences); 64: one replica of each model in most pools."""
A100 = 1


def wan(joules_per_bit: float, bytes_per_second: float = WAN.bytes_per_second) -> Link:
    """The default link with another network."""
    return replace(WAN, network_joules_per_bit=joules_per_bit, bytes_per_second=bytes_per_second)


def break_even_with_pull(model: int, history_tokens: float, link: Link) -> float:
    """τ(H) when the history is pulled and not recomputed: 0 where no grid is clean enough. On A100 at both ends.

    Staying emits CI_A·E_hit; moving CI_B·E_hit and the joules of the pull, the sender's and half of the network's with
    CI_A, the rest with CI_B.
    """
    ratios = TokenRatios()
    paid = NEW_TOKENS + ratios.output * OUTPUT_TOKENS + ratios.cached * history_tokens
    hit = float(profile().input_joules[model * len(GPUS) + A100]) * paid
    moved = transfer(history_tokens, MODELS[model].kv_bytes_per_token, link)
    half = 0.5 * moved.network_joules
    return max((hit - moved.sender_joules - half) / (hit + moved.receiver_joules + half), 0.0)


def joules_per_bit_of_recomputing(model: int) -> float:
    """What recomputing costs per bit of the KV that comes of it: a pull that costs more is no saving. On A100."""
    joules = float(profile().input_joules[model * len(GPUS) + A100]) * (1.0 - TokenRatios().cached)
    return joules / bits_from_bytes(MODELS[model].kv_bytes_per_token)


def bytes_per_second_of_recomputing(model: int) -> float:
    """How fast recomputing makes KV: a slower link makes the turn wait longer. On A100."""
    return float(profile().prefill_tokens_per_second[model * len(GPUS) + A100]) * MODELS[model].kv_bytes_per_token


def crossover_sheet() -> Sheet:
    """Where a pull stops being worth it, by model."""
    rows = tuple(
        (
            m.name,
            f"{joules_per_bit_of_recomputing(i) * 1e9:.0f}",
            f"{bytes_per_second_of_recomputing(i) * 8e-9:.1f}",
            f"{break_even_with_pull(i, 4_096.0, wan(NETWORK_JOULES_PER_BIT[1])):.2f}",
            f"{break_even_with_pull(i, 4_096.0, WAN):.2f}",
        )
        for i, m in enumerate(MODELS)
    )
    return Sheet(
        "Beyond the paper: when pulling KV changes the answer",
        (
            "model on A100",
            "pull pays below, nJ/bit",
            "is faster above, Gbit/s",
            f"break-even at 4K, {NETWORK_JOULES_PER_BIT[1] * 1e9:g} nJ/bit",
            f"at {WAN.network_joules_per_bit * 1e9:g} nJ/bit",
        ),
        rows,
        "Break-even is CI_B/CI_A as in figure 2(c), where recomputing gives 0.32 for every model; higher: a move pays "
        "more often; 0: no grid is clean enough.",
    )


def transfer_rows(
    stretches: Sequence[Stretch], base: Arm, gate_text: str, seed: int, workers: Workers
) -> tuple[list[Row], Sheet]:
    """CCAR that may pull, against CCAR that may not, over the network's cost and speed."""
    settings = [(j, b) for j in NETWORK_JOULES_PER_BIT for b in BYTES_PER_SECOND]
    runs = [Run(s, CCAR, System(transfers=Transfers(wan=wan(j, b))), gate_text) for j, b in settings for s in stretches]
    logs = workers.map("beyond: pulling KV", play, runs)
    ground, n = Ground.of(stretches), len(stretches)
    arms = {each: Arm.of(logs[i * n : (i + 1) * n]) for i, each in enumerate(settings)}
    rows, cells = [], []
    for j in NETWORK_JOULES_PER_BIT:
        line = [f"{j * 1e9:g} nJ/bit"]
        for b in BYTES_PER_SECOND:
            arm = arms[j, b]
            found = change(ground, arm.grams_co2e, base.grams_co2e, seed)
            pulled = float(np.nansum(arm.pulled_tokens)) / float(ground.history_tokens.sum())
            line.append(f"{found.estimate * PERCENT:+.1f} %, {pulled:.0%} pulled, {p95_ttft_seconds(arm):.2f} s")
            if b == WAN.bytes_per_second:
                rows.append(
                    percent_row(
                        f"beyond/pull-{j * 1e9:g}-nj-per-bit",
                        f"CO2 of CCAR that may pull KV, {j * 1e9:g} nJ/bit between regions",
                        None,
                        found,
                        holds=None,
                        note=f"against CCAR; {pulled:.1%} of the history is pulled, "
                        f"{recomputed_share(ground, arm):.1%} recomputed, {recomputed_share(ground, base):.1%} without",
                    )
                )
        cells.append(tuple(line))
    speeds = tuple(f"{b * 8e-9:g} Gbit/s" for b in BYTES_PER_SECOND)
    sheet = Sheet(
        "Beyond the paper: CCAR that may pull KV, against CCAR",
        ("network", *speeds),
        tuple(cells),
        "Change of CO2, share of the history that is pulled, P95 TTFT (pull included).",
    )
    return rows, sheet


def queue_rows(stretches: Sequence[Stretch], name: str, gate_text: str, seed: int, workers: Workers) -> list[Row]:
    """The saving against FairCarbon-like when turns wait for each other's prefill."""
    policies = (CCAR, FAIR_CARBON)
    runs = [
        Run(s, p, System(sessions_per_replica=r), gate_text if p == CCAR else "")
        for r in SESSIONS_PER_REPLICA
        for p in policies
        for s in stretches
    ]
    logs = workers.map(f"beyond: queues, {name}", play, runs)
    ground, n = Ground.of(stretches), len(stretches)
    arms = [Arm.of(logs[i : i + n]) for i in range(0, len(logs), n)]
    rows = []
    for i, r in enumerate(SESSIONS_PER_REPLICA):
        ours, theirs = arms[2 * i], arms[2 * i + 1]
        rows.append(
            percent_row(
                f"beyond/queue/{name}/{r:g}-sessions-per-replica",
                f"CO2 saved against FairCarbon-like with queues, {r:g} sessions per replica, {name}",
                None,
                saving(ground, ours, theirs, seed),
                holds=None,
                note=f"P95 TTFT {p95_ttft_seconds(ours):.2f} s against {p95_ttft_seconds(theirs):.2f} s; mean wait "
                f"{np.nanmean(ours.wait_seconds):.2f} s against {np.nanmean(theirs.wait_seconds):.2f} s",
            )
        )
    return rows
