"""What is predicted, from which rows, and within which bounds a label can be true."""

from dataclasses import dataclass
from enum import StrEnum

from heliotrope.predict.features import FEATURES, STEP_FEATURES, Feature, column_of


class Target(StrEnum):
    """A quantity that a model predicts: its mean and its 0.9 quantile."""

    TTFT = "ttft_seconds"
    TPOT = "tpot_seconds"
    REQUEST_ENERGY = "request_joules"
    STEP_ENERGY = "step_joules"


@dataclass(frozen=True, slots=True)
class Table:
    """A kind of row, and the labels that such a row can have."""

    name: str
    features: tuple[Feature, ...]
    targets: tuple[Target, ...]

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(feature.name for feature in self.features)

    @property
    def categorical(self) -> tuple[int, ...]:
        """Indices of categorical columns."""
        return tuple(i for i, feature in enumerate(self.features) if feature.categorical)


REQUESTS = Table("requests", FEATURES, (Target.TTFT, Target.TPOT, Target.REQUEST_ENERGY))
STEPS = Table("steps", STEP_FEATURES, (Target.STEP_ENERGY,))
TABLES = {table.name: table for table in (REQUESTS, STEPS)}
TABLE_OF = {target: table for table in TABLES.values() for target in table.targets}

ANALYTIC_COLUMN = {
    Target.TTFT: column_of("analytic_ttft_seconds"),
    Target.TPOT: column_of("analytic_tpot_seconds"),
    Target.REQUEST_ENERGY: column_of("analytic_request_joules"),
    Target.STEP_ENERGY: column_of("analytic_step_joules", STEP_FEATURES),
}
"""The column that holds the analytic model's own estimate of a target."""

BOUNDS = {
    Target.TTFT: (1e-5, 3_600.0),
    Target.TPOT: (2e-4, 60.0),
    Target.REQUEST_ENERGY: (1e-3, 1e8),
    Target.STEP_ENERGY: (1e-4, 1e6),
}
"""Labels outside cannot be true: a network hop alone takes longer than the lower TTFT; no engine decodes 5,000 tokens a
second for one request, so that an answer which seems to has been held back on its way; an hour is longer than any
gateway waits; 1e8 J is a node of eight accelerators at full power for more than three hours."""
