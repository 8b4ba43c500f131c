"""Pictures as PNG in base64, so that a report needs no other file."""

import base64
import io
from typing import Any

from matplotlib.figure import Figure


def new_figure(width: float = 9.0, height: float = 4.0) -> Any:
    """An empty figure; nothing global is touched."""
    return Figure(figsize=(width, height), layout="constrained")


def png_base64(figure: Any) -> str:
    """The figure's bytes."""
    data = io.BytesIO()
    # Without a date, so that equal figures are equal bytes.
    figure.savefig(data, format="png", dpi=110, metadata={"Software": None})
    return base64.b64encode(data.getvalue()).decode()
