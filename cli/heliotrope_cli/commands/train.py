"""`heliotrope train`: predictors from a user's own data."""

from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App
from rich.table import Table

from heliotrope.errors import InvalidInputError
from heliotrope_cli.tables import console

if TYPE_CHECKING:
    from heliotrope.predict.text_quality_training import Score

train = App(name="train", help="Train predictors on your own data.")

MAX_DATA_BYTES = 512 * 1024 * 1024


@train.command
def quality(data: Path, *, out: Path) -> None:
    """Train a predictor of answers' quality from a prompt's text, for `heliotrope epp --quality-model`.

    Prints, per model, the mean absolute error on held-out prompts beside that of the mean score. A model that is not
    better than the mean tells nothing from the prompt. The file holds weights of hashed n-grams and no prompts.

    Args:
        data: JSON lines {"prompt": "…", "model": "…", "score": 0.8}, scores from 0 to 1.
        out: File to write.
    """
    from heliotrope.predict.text_quality_training import train as fit

    model, reports = fit(_scores(data))
    table = Table("model", "fitted", "held out", "left out", "penalty", "error", "error of the mean", "better")
    for each in reports:
        table.add_row(
            each.model,
            str(each.fitted),
            str(each.held_out),
            str(each.left_out),
            f"{each.penalty:g}",
            f"{each.mean_absolute_error:.3f}",
            f"{each.base_error:.3f}",
            "yes" if each.better_than_base else "no",
        )
    try:
        out.write_text(model.to_text(), encoding="utf-8")
    except OSError as error:
        raise InvalidInputError("--out", f"cannot be written: {error}") from error
    console().print(table)


def _scores(data: Path) -> "list[Score]":
    from heliotrope.predict.text_quality_training import read_scores

    try:
        if data.stat().st_size > MAX_DATA_BYTES:
            raise InvalidInputError("DATA", f"is larger than {MAX_DATA_BYTES // 1024 // 1024} MiB")
        with data.open(encoding="utf-8") as lines:
            return read_scores(lines)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError("DATA", f"cannot be read: {error}") from error
