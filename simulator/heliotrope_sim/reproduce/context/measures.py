"""What logs say: totals by session, intervals over sessions, and the shares that explain them."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from heliotrope.carbon.bootstrap import Interval, block_bootstrap, relative_change
from heliotrope_sim.reproduce.context.profiles import MODEL_OF, MODELS, Floats, Indices
from heliotrope_sim.reproduce.context.replay import Log
from heliotrope_sim.reproduce.context.tasks import Hour, Stretch, workload_of

Bools = NDArray[np.bool_]
RESAMPLES = 1_000
"""Of the bootstrap over sessions, which are independent of each other but for what they evict."""
P95 = 95.0


@dataclass(frozen=True, slots=True, eq=False)
class Ground:
    """The turns of several stretches in one, sessions numbered through."""

    session: Indices
    turn: Indices
    history_tokens: Floats
    new_tokens: Floats
    output_tokens: Floats
    quality: Floats
    turns_of_session: Indices
    drawn: Indices
    """(S,) what a bootstrap draws together: a session, or all replays of one at several hours."""

    @classmethod
    def of(cls, stretches: Sequence[Stretch]) -> "Ground":
        """Of these stretches in this order."""
        workloads = [workload_of(s) for s in stretches]
        offsets = np.cumsum([0, *(w.sessions for w in workloads)])
        session = np.concatenate([w.session + offset for w, offset in zip(workloads, offsets, strict=False)])
        return cls(
            session=session,
            turn=np.concatenate([w.turn for w in workloads]),
            history_tokens=np.concatenate([w.history_tokens for w in workloads]),
            new_tokens=np.concatenate([w.new_tokens for w in workloads]),
            output_tokens=np.concatenate([w.output_tokens for w in workloads]),
            quality=np.concatenate([w.quality for w in workloads]),
            turns_of_session=np.bincount(session, minlength=int(offsets[-1])),
            drawn=_drawn(stretches, [w.sessions for w in workloads]),
        )

    @property
    def sessions(self) -> int:
        """How many."""
        return len(self.turns_of_session)

    def by_session(self, values: Floats) -> Floats:
        """(S,) sums; NaN, a rejected turn, adds nothing."""
        sums: Floats = np.bincount(self.session, weights=np.nan_to_num(values), minlength=self.sessions).astype(
            np.float64
        )
        return sums

    def longer_than(self, turns: int) -> Bools:
        """(S,) sessions with more turns."""
        return self.turns_of_session > turns

    def rows_of(self, sessions: Bools) -> Bools:
        """(Q,) their turns."""
        return sessions[self.session]


def _drawn(stretches: Sequence[Stretch], sessions: Sequence[int]) -> Indices:
    """Every hour that the trace is put at has the same sessions; stretches of other kinds have their own."""
    numbered: list[Indices] = []
    trace: Indices | None = None
    count = 0
    for stretch, n in zip(stretches, sessions, strict=True):
        own = trace if isinstance(stretch, Hour) and trace is not None else np.arange(count, count + n)
        if own is not trace:
            count += n
        if isinstance(stretch, Hour):
            trace = own
        numbered.append(own)
    return np.concatenate(numbered)


class Arm(Log):
    """The logs of one policy over the stretches of a ground."""

    @classmethod
    def of(cls, logs: Sequence[Log]) -> "Arm":
        """In the order of the ground's stretches."""
        return cls(*(np.concatenate([getattr(log, f.name) for log in logs]) for f in fields(Log)))


def change(ground: Ground, a: Floats, b: Floats, seed: int, sessions: Bools | None = None) -> Interval:
    """Total of a over total of b, less one, with its interval over sessions; of some sessions or all."""
    chosen = np.ones(ground.sessions, dtype=np.bool_) if sessions is None else sessions
    drawn = np.unique(ground.drawn[chosen], return_inverse=True)[1]
    columns = [np.bincount(drawn, weights=ground.by_session(each)[chosen]) for each in (a, b)]
    return block_bootstrap(np.stack(columns, axis=1), relative_change, resamples=RESAMPLES, seed=seed)


def saving(ground: Ground, ours: Arm, theirs: Arm, seed: int, sessions: Bools | None = None) -> Interval:
    """The share of their emissions that ours saves."""
    found = change(ground, ours.grams_co2e, theirs.grams_co2e, seed, sessions)
    return Interval(-found.estimate, -found.high, -found.low, found.confidence, found.blocks)


def p95_ttft_seconds(arm: Arm, rows: Bools | None = None) -> float:
    """95th percentile of the time to first token, of some turns or all."""
    column = arm.ttft_seconds if rows is None else arm.ttft_seconds[rows]
    return float(np.nanpercentile(column, P95))


def recomputed_share(ground: Ground, arm: Arm) -> float:
    """Share of all history tokens that were not cached where their turn ran."""
    served = arm.deployment >= 0
    total = float(ground.history_tokens[served].sum())
    return 1.0 - float(arm.cached_tokens[served].sum()) / total if total > 0.0 else float("nan")


def hit_share(ground: Ground, arm: Arm, rows: Bools | None = None) -> float:
    """Share of the turns with history that found all of it cached."""
    asked = (ground.turn > 1) & (arm.deployment >= 0)
    if rows is not None:
        asked &= rows
    return float((arm.cached_tokens[asked] >= ground.history_tokens[asked]).mean())


def switches(ground: Ground, arm: Arm) -> Bools:
    """(Q,) turns that ran elsewhere than their predecessor."""
    moved = np.zeros(len(arm.deployment), dtype=np.bool_)
    moved[1:] = (ground.session[1:] == ground.session[:-1]) & (arm.deployment[1:] != arm.deployment[:-1])
    return moved


def reversed_share(ground: Ground, arm: Arm) -> float:
    """Share of the switches, but those at a session's last turn, that the next turn reverses."""
    d, same = arm.deployment, ground.session[2:] == ground.session[:-2]
    moved = same & (d[1:-1] != d[:-2])
    return float((d[2:] == d[:-2])[moved].mean())


def mean_quality(ground: Ground, arm: Arm) -> float:
    """Of the models that answered."""
    served = np.flatnonzero(arm.deployment >= 0)
    return float(ground.quality[served, MODEL_OF[arm.deployment[served]]].mean())


def largest_model_share(arm: Arm) -> float:
    """Share of the turns on the 70B model."""
    served = arm.deployment[arm.deployment >= 0]
    return float((MODEL_OF[served] == len(MODELS) - 1).mean())
