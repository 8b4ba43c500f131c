"""What a recorded decision says of models: who answered, who might have, and who predicted their quality."""

from heliotrope.decide.recorded import ModelOption, ModelRecord
from heliotrope_cli.quantities import UNKNOWN, joules, plain, shown


def model_lines(record: ModelRecord | None) -> list[str]:
    """Nothing where the policy opts nothing in."""
    if record is None:
        return []
    floor = f"quality at least {plain(record.least_quality)}, {plain(record.quality_floor)} of the best available"
    if record.least_quality is None:
        floor = "no quality is known"
    if not record.applied or record.chosen is None:
        lead = f"Models of {shown(record.group)} were compared and none was set"
    elif record.chosen == record.default:
        lead = f"Model {shown(record.chosen)} answers, the default of {shown(record.group)}"
    else:
        lead = f"Model {shown(record.chosen)} answers in place of {shown(record.default)}"
    effort = next((o.effort for o in record.models if o.model == record.chosen and o.effort is not None), None)
    lowered = "" if effort is None else f", at reasoning effort {shown(effort)}"
    lines = [f"{lead}{lowered}: {floor}. {'; '.join(map(_option, record.models))}."]
    by = f"Quality by {shown(record.predictor)} for tasks of class {shown(record.task)}"
    spent = "" if record.router_joules is None else f"; predicting took {joules(record.router_joules)} of the picker"
    if record.withheld_because is not None:
        lines.append(f"Not granted, so the default answers: {shown(record.withheld_because, 500)}.")
    lines.append(f"{by}{'' if record.fallback is None else f', as {shown(record.fallback)}'}{spent}.")
    return lines


def _option(option: ModelOption) -> str:
    quality = UNKNOWN if option.quality is None else plain(option.quality)
    verdict = "may answer" if option.allowed else "not served" if not option.available else "out"
    return f"{shown(option.model)} {quality} ({verdict})"
