"""What profiles chose for a request, with the numbers behind it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heliotrope.decide.candidates import FloatColumn
from heliotrope.decide.compared import Comparison, Planned
from heliotrope.decide.decision import Decision
from heliotrope.decide.explanation import MAX_CANDIDATES
from heliotrope.decide.holdout import UNASSIGNED, Assignment
from heliotrope.decide.policy import Provenance
from heliotrope.decide.quality import ModelChoice, ModelVerdict
from heliotrope.unknown import finite_or_none
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.plugins.interface import Option, Options, Pick
from heliotrope_epp.plugins.profile import Profile

NAN = float("nan")


def untimed() -> float:
    """The timer of a run whose instants nobody wants."""
    return NAN


@dataclass(frozen=True, slots=True)
class ProfileTimes:
    """Instants of one profile's run, as the run's timer gave them; NaN where it was untimed or not reached."""

    started_s: float
    filtered_s: float
    scored_s: tuple[float, ...] = ()
    """Per scorer, its end."""
    picked_s: float = NAN


@dataclass(frozen=True, slots=True)
class ProfileResult:
    """What one profile chose, with the numbers behind it."""

    profile: Profile
    pick: Pick
    options: Options
    """What the filters left, in the order of the columns."""
    columns: tuple[FloatColumn, ...]
    """Per scorer, one value per option as the scorer gave it."""
    scores: FloatColumn
    """The weighted sums."""
    considered: int
    """Endpoints that the filters were given."""
    times: ProfileTimes

    def explanation(self) -> dict[str, Any]:
        """All of it as plain data for logs and `/debug`; of very many candidates those that came closest."""
        scorers = self.profile.scorers
        shown = self._shown()
        return {
            "profile": self.profile.name,
            "weights": {weighted.name: weighted.weight for weighted in scorers},
            "picker": self.profile.picker_name,
            "endpoints": [option.key for option in self.pick.options],
            "reason": self.pick.reason,
            "candidates": [
                {
                    "endpoint": option.key,
                    "score": float(self.scores[i]),
                    "scores": {
                        w.name: finite_or_none(column[i]) for w, column in zip(scorers, self.columns, strict=True)
                    },
                    "cached_tokens": float(option.cached_tokens),
                }
                for i, option in shown
            ],
            "candidates_omitted": len(self.options) - len(shown),
        }

    def _shown(self) -> Sequence[tuple[int, Option]]:
        rows = list(enumerate(self.options))
        if len(rows) <= MAX_CANDIDATES:
            return rows
        picked = {option.key for option in self.pick.options}
        nearest = sorted(rows, key=lambda row: (row[1].key not in picked, -self.scores[row[0]]))
        return sorted(nearest[:MAX_CANDIDATES], key=lambda row: row[0])


@dataclass(frozen=True, slots=True)
class ScheduleResult:
    """What every profile chose that ran, and which one counts."""

    primary: str
    profiles: Mapping[str, ProfileResult]
    enforced: bool
    """Whether a policy decided; False under `Advise`, where its decision is kept but not followed."""
    assignment: Assignment = UNASSIGNED
    """The arm of the request, the same in every profile."""
    models: ModelVerdict | None = None
    """Which models may answer; None: the policy opts nothing in for this request, or none of its group is served."""

    comparison: Comparison | None = None
    """What ran beside what the policy would have done; None where it was followed, or there is none."""

    @property
    def pick(self) -> Pick:
        """The destination and its fallbacks."""
        return self.profiles[self.primary].pick

    @property
    def decision(self) -> Decision | None:
        """What the attached policy decided or would have decided; None without one."""
        return self.profiles[self.primary].pick.decision

    def plan_row(self, endpoint: str) -> int | None:
        """The row of the decision that holds for what is done when the request goes to `endpoint`.

        None without a decision, and where it has no such plan. An enforced decision's winner may be a plan that fetches
        blocks or prefills elsewhere; where the configured pickers decide, endpoints are used as they are.
        """
        decision, prefill = self.decision, self.pick.prefill
        if decision is None:
            return None
        return decision.row_of(endpoint) if prefill is None else decision.pair_row(endpoint, prefill.key)

    def planned(self, endpoint: str) -> Planned | None:
        """What is done when the request goes to `endpoint`, with its estimates; None where nobody has estimated it."""
        row = self.plan_row(endpoint)
        ran = None if self.comparison is None else self.comparison.ran
        elsewhere = self.pick.prefill is not None or self.pick.encoders
        if ran is not None and ran.endpoint == endpoint and elsewhere:
            return ran
        return None if row is None or self.decision is None else self.decision.planned(row)

    @property
    def model_choice(self) -> ModelChoice | None:
        """The model that the destination is asked for; None leaves the request's, as `Advise` does."""
        if self.models is None or not self.enforced or not self.pick.options:
            return None
        return self.models.choice(served_model(self.pick.options[0].state))

    @property
    def provenance(self) -> Provenance | None:
        """Where the settings of the request came from; None without a policy."""
        return None if self.decision is None else self.decision.policy.provenance

    def explanation(self) -> dict[str, Any]:
        """All of it as plain data."""
        return {
            "primary": self.primary,
            "enforced": self.enforced,
            "arm": self.assignment.arm.value,
            "request_class": self.assignment.request_class,
            "profiles": [result.explanation() for result in self.profiles.values()],
        } | self._models()

    def _models(self) -> dict[str, Any]:
        if self.models is None:
            return {}
        choice = self.model_choice
        chosen = None if choice is None else choice.model
        why = None if choice is None else choice.why
        applied = self.enforced and self.models.withheld is None
        return {"models": {**self.models.document(), "applied": applied, "chosen": chosen, "why": why}}


def served_model(state: EndpointState) -> str | None:
    """The model that an endpoint serves, as its WorkloadVariant says; None: nobody says."""
    hardware = state.traits.hardware
    return None if hardware is None else hardware.model
