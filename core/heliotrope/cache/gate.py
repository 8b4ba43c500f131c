"""The learned gate of session routing (context-is-not-free, algorithm 1): what staying is worth, and from when on.

A gate predicts the carbon that staying saves over this turn and the next, as a share of what both choices are estimated
to emit for this turn. It was trained on branching replays (`heliotrope.cache.gate_training`), because the difference of
both choices is never seen in production. Its threshold comes from sessions that training has not seen; infinite: off.

    heliotrope-gate 1
    sha256 <digest of all bytes after this line>
    {"features": […], "threshold": 0.05, "trained_on": …, "validated_on": …, "saving": …}
    <LightGBM's text>

No pickle: nothing in the file is executed, and what passes the digest is still checked number by number.
"""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from heliotrope.cache.gate_features import FEATURE_NAMES, GateFeatures
from heliotrope.predict.forest import Forest, InvalidModelError, parse_forest
from heliotrope.predict.walk import walk
from heliotrope.sealed import digest_of, sealed, unsealed
from heliotrope.unknown import finite_or_none

FORMAT = "heliotrope-gate 1"
MAX_CHARACTERS = 4_000_000
_MAX_COUNT = 1e12


@dataclass(frozen=True, slots=True, eq=False)
class Gate:
    """A trained predictor with its threshold. `OFF` is the one that never keeps a session."""

    threshold: float
    """δ: staying must save more than this share; infinite: the gate is off."""
    text: str = field(default="", repr=False)
    """LightGBM's, up to "end of trees"."""
    forest: Forest | None = field(default=None, repr=False)
    trained_on: int = 0
    """Switches that were replayed with both choices."""
    validated_on: int = 0
    """Sessions that chose the threshold."""
    saving: float = math.nan
    """Share of carbon that the gate saved over those sessions, against no gate."""

    @property
    def on(self) -> bool:
        """Whether it may keep a session anywhere."""
        return self.forest is not None and math.isfinite(self.threshold)

    def advantage(self, features: GateFeatures) -> float | None:
        """What staying saves over this turn and the next, as a share of both estimates; None: nobody knows."""
        if self.forest is None:
            return None
        begins = np.array([0, self.forest.trees], dtype=np.int32)
        value = float(walk(features.row(), self.forest, begins)[0, 0])
        return value if math.isfinite(value) else None

    def to_text(self) -> str:
        """The file."""
        head = {
            "features": list(FEATURE_NAMES),
            "threshold": finite_or_none(self.threshold),
            "trained_on": self.trained_on,
            "validated_on": self.validated_on,
            "saving": finite_or_none(self.saving),
        }
        body = json.dumps(head) + "\n" + self.text
        return sealed(FORMAT, body)

    @property
    def digest(self) -> str:
        """Hexadecimal SHA-256 of the content: names the gate."""
        return digest_of(self.to_text())

    def dump(self, path: Path) -> None:
        """Write the file."""
        path.write_text(self.to_text(), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> "Gate":
        """Read a file.

        Raises:
            InvalidModelError: as `parse_gate`, or if the file is too long or no text.
            OSError: if it cannot be read.
        """
        if path.stat().st_size > MAX_CHARACTERS:
            raise InvalidModelError("gate", f"is longer than {MAX_CHARACTERS} characters")
        try:
            return parse_gate(path.read_text(encoding="utf-8"))
        except UnicodeDecodeError as error:
            raise InvalidModelError("gate", f"is no text: {error.reason}") from None


OFF = Gate(math.inf)
"""δ = +∞: every proposal is followed."""


def parse_gate(text: str) -> Gate:
    """Read what `Gate.to_text` wrote.

    Raises:
        InvalidModelError: if the text is cut off, was changed, is of another version, or cannot be walked safely.
    """
    body = unsealed(text, FORMAT, name="gate", max_characters=MAX_CHARACTERS, error=InvalidModelError)
    head_text, _, rest = body.partition("\n")
    try:
        head = json.loads(head_text)
    except (ValueError, RecursionError) as error:
        raise InvalidModelError("gate.head", f"is no JSON: {error}") from None
    if not isinstance(head, dict):
        raise InvalidModelError("gate.head", "must be an object")
    if head.get("features") != list(FEATURE_NAMES):
        raise InvalidModelError("gate.features", "are not the features of this version; train again")
    return Gate(
        threshold=_number(head, "threshold", -100.0, 100.0, math.inf),
        text=rest,
        forest=parse_forest(rest, FEATURE_NAMES, "gate") if rest else None,
        trained_on=int(_number(head, "trained_on", 0.0, _MAX_COUNT)),
        validated_on=int(_number(head, "validated_on", 0.0, _MAX_COUNT)),
        saving=_number(head, "saving", -_MAX_COUNT, 1.0, math.nan),
    )


def _number(head: dict[str, Any], name: str, low: float, high: float, absent: float | None = None) -> float:
    value = head.get(name)
    if value is None and absent is not None:
        return absent
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidModelError(f"gate.{name}", "must be a number")
    if not low <= value <= high:
        raise InvalidModelError(f"gate.{name}", f"must lie from {low:g} to {high:g}")
    return float(value)
