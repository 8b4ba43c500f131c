"""Round trips between regions of a cloud, as measured."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from heliotrope.errors import InvalidInputError
from heliotrope.units import seconds_from_milliseconds
from heliotrope_sim.data import data_file

AWS_FILE = "aws-interregion-rtt/cloudping_p50_ms.json"


def aws_rtt_seconds(sources: Sequence[str], targets: Sequence[str], path: Path | None = None) -> NDArray[np.float64]:
    """Median round trips between AWS regions (`data/aws-interregion-rtt`), shape (sources, targets).

    Raises:
        InvalidInputError: if a pair is not measured.
    """
    path = path or data_file(AWS_FILE)
    table = json.loads(path.read_text(encoding="utf-8"))["data"]
    matrix = np.empty((len(sources), len(targets)))
    for i, source in enumerate(sources):
        for j, target in enumerate(targets):
            if target not in table.get(source, {}):
                raise InvalidInputError(f"{path.name}:{source}", f"no round trip to {target!r} is measured")
            matrix[i, j] = seconds_from_milliseconds(float(table[source][target]))
    return matrix
