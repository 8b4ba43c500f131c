"""Models of several targets as one text, and its reading back with nothing taken on trust.

    heliotrope-models 1
    sha256 <digest of all bytes after this line>
    {"created_unix_s": …, "models": [{"target": "ttft_seconds", …, "characters": 12345}, …]}
    <LightGBM's text of the first target><of the second>…

No pickle: nothing in the file is executed. What passes the digest is still checked number by number, because whoever
can change a file can also compute a digest.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from heliotrope.predict.conformal import Calibration
from heliotrope.predict.costs import KIND_FEATURES, MAX_KINDS, NO_COSTS, TERMS, UNKNOWN, Costs
from heliotrope.predict.features import Matrix
from heliotrope.predict.forest import MAX_LEAF, Forest, InvalidModelError, parse_forest
from heliotrope.predict.regimes import Regime
from heliotrope.predict.targets import TABLE_OF, Target
from heliotrope.sealed import digest_of, sealed, unsealed
from heliotrope.unknown import finite_or_none

FORMAT = "heliotrope-models 1"
MAX_CHARACTERS = 16_000_000
"""Of a whole bundle; a trained one has some hundred thousand."""


@dataclass(frozen=True, slots=True)
class Scores:
    """Of one target on samples that neither training nor calibration saw. Errors are fractions; NaN: not known."""

    samples: int
    mape: float
    """Mean absolute relative error."""
    analytic_mape: float
    """Of the analytic model, where it has an estimate."""
    coverage: float
    """Share of samples at or below the predicted 0.9 quantile."""


@dataclass(frozen=True, slots=True, eq=False)
class TargetModel:
    """Boosted trees that correct a base, or stand alone where there is none.

    The prediction is base × exp(trees + calibration), where the base is what the refitted costs of the hardware give
    (`heliotrope.predict.base`), else the analytic estimate, or `scale` where that is unknown or `analytic_base` is
    false.
    """

    target: Target
    text: str = field(repr=False)
    """As LightGBM writes it, up to "end of trees"."""
    forest: Forest = field(repr=False)
    scale: float
    """Geometric mean of the labels, in the target's unit."""
    analytic_base: bool
    calibration: Calibration
    trained_on: int
    scores: Scores
    costs: Costs = field(default=NO_COSTS, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Bundle:
    """The models that were trained or promoted together. A target without a model stays analytic."""

    created_unix_s: float
    models: Mapping[Target, TargetModel]

    def to_text(self) -> str:
        """The file."""
        head = {
            "created_unix_s": self.created_unix_s,
            "models": [_head(model) for _, model in sorted(self.models.items())],
        }
        texts = "".join(model.text for _, model in sorted(self.models.items()))
        body = json.dumps(head) + "\n" + texts
        return sealed(FORMAT, body)

    @property
    def digest(self) -> str:
        """Hexadecimal SHA-256 of the content: names the bundle."""
        return digest_of(self.to_text())


EMPTY = Bundle(0.0, {})
"""Everything stays analytic."""


def parse_bundle(text: str) -> Bundle:
    """Read what `Bundle.to_text` wrote.

    Raises:
        InvalidModelError: if the text is cut off, was changed, is of another version, or cannot be walked safely.
    """
    body = unsealed(text, FORMAT, name="bundle", max_characters=MAX_CHARACTERS, error=InvalidModelError)
    head_text, _, rest = body.partition("\n")
    try:
        head = json.loads(head_text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidModelError("bundle.head", f"is no JSON: {error}") from None
    models: dict[Target, TargetModel] = {}
    entries = _item(head, "models", list, "bundle")
    for index, entry in enumerate(entries):
        path = f"bundle.models[{index}]"
        characters = int(_number(entry, "characters", path, 1, MAX_CHARACTERS))
        if characters > len(rest):
            raise InvalidModelError(f"{path}.characters", "is more than there is")
        model = _model(entry, rest[:characters], path)
        if model.target in models:
            raise InvalidModelError(f"{path}.target", f"{model.target} is there twice")
        models[model.target] = model
        rest = rest[characters:]
    if rest:
        raise InvalidModelError("bundle", "has text behind the last model")
    return Bundle(_number(head, "created_unix_s", "bundle", 0.0, 1e12), models)


def _head(model: TargetModel) -> dict[str, Any]:
    calibration, scores = model.calibration, model.scores
    return {
        "target": model.target.value,
        "features": list(TABLE_OF[model.target].feature_names),
        "scale": model.scale,
        "analytic_base": model.analytic_base,
        "mean": list(calibration.mean),
        "typical": list(calibration.typical),
        "q90": list(calibration.q90),
        "spread": list(calibration.spread),
        "residuals": list(calibration.residuals),
        "trained_on": model.trained_on,
        "samples": scores.samples,
        "mape": finite_or_none(scores.mape),
        "analytic_mape": finite_or_none(scores.analytic_mape),
        "coverage": finite_or_none(scores.coverage),
        "kinds": model.costs.kinds.tolist(),
        "coefficients": model.costs.coefficients.tolist(),
        "characters": len(model.text),
    }


def _model(entry: Any, text: str, path: str) -> TargetModel:
    name = _item(entry, "target", str, path)
    if name not in set(Target):
        raise InvalidModelError(f"{path}.target", f"{name[:40]!r} is unknown; known: {', '.join(Target)}")
    target = Target(name)
    names = TABLE_OF[target].feature_names
    if _item(entry, "features", list, path) != list(names):
        raise InvalidModelError(f"{path}.features", "are not the features of this version; train again")
    counts = _tuple(entry, "residuals", path, 0.0, 1e12)
    return TargetModel(
        target=target,
        text=text,
        forest=parse_forest(text, names, path),
        scale=_number(entry, "scale", path, 1e-12, 1e12),
        analytic_base=_item(entry, "analytic_base", bool, path),
        calibration=Calibration(
            mean=_tuple(entry, "mean", path, -MAX_LEAF, MAX_LEAF),
            typical=_tuple(entry, "typical", path, -MAX_LEAF, MAX_LEAF),
            q90=_tuple(entry, "q90", path, -MAX_LEAF, MAX_LEAF),
            spread=_tuple(entry, "spread", path, 0.0, MAX_LEAF),
            residuals=tuple(int(count) for count in counts),
        ),
        trained_on=int(_number(entry, "trained_on", path, 0.0, 1e12)),
        scores=Scores(
            samples=int(_number(entry, "samples", path, 0.0, 1e12)),
            mape=_number_or_nan(entry, "mape", path),
            analytic_mape=_number_or_nan(entry, "analytic_mape", path),
            coverage=_number_or_nan(entry, "coverage", path),
        ),
        costs=_costs(entry, path),
    )


def _costs(entry: Any, path: str) -> Costs:
    kinds = _lines(entry, "kinds", path, len(KIND_FEATURES), UNKNOWN)
    coefficients = _lines(entry, "coefficients", path, TERMS, 0.0)
    if len(kinds) != len(coefficients):
        raise InvalidModelError(f"{path}.coefficients", "must have one line per kind")
    return Costs(kinds, coefficients)


def _lines(entry: Any, name: str, path: str, width: int, low: float) -> Matrix:
    lines = _item(entry, name, list, path)
    if len(lines) > MAX_KINDS:
        raise InvalidModelError(f"{path}.{name}", f"must have at most {MAX_KINDS} lines")
    numbers = np.empty((len(lines), width))
    for i, line in enumerate(lines):
        if not isinstance(line, list) or len(line) != width:
            raise InvalidModelError(f"{path}.{name}[{i}]", f"must be {width} numbers")
        for j, value in enumerate(line):
            numbers[i, j] = _checked(value, f"{path}.{name}[{i}][{j}]", low, 1e12)
    return numbers


def _item(entry: Any, name: str, kind: type, path: str) -> Any:
    if not isinstance(entry, dict):
        raise InvalidModelError(path, "must be an object")
    value = entry.get(name)
    if not isinstance(value, kind):
        raise InvalidModelError(f"{path}.{name}", f"must be a {kind.__name__}")
    return value


def _checked(value: Any, path: str, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidModelError(path, "must be a number")
    if not low <= value <= high:
        raise InvalidModelError(path, f"must lie from {low:g} to {high:g}")
    return float(value)


def _number(entry: Any, name: str, path: str, low: float, high: float) -> float:
    if not isinstance(entry, dict):
        raise InvalidModelError(path, "must be an object")
    return _checked(entry.get(name), f"{path}.{name}", low, high)


def _number_or_nan(entry: Any, name: str, path: str) -> float:
    return math.nan if entry.get(name) is None else _number(entry, name, path, 0.0, 1e12)


def _tuple(entry: Any, name: str, path: str, low: float, high: float) -> tuple[float, ...]:
    values = _item(entry, name, list, path)
    if len(values) != len(Regime):
        raise InvalidModelError(f"{path}.{name}", f"must have one number per regime, {len(Regime)}")
    return tuple(_checked(value, f"{path}.{name}[{i}]", low, high) for i, value in enumerate(values))


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")
