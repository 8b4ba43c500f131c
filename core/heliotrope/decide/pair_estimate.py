"""The prefiller's part in the estimates of prefill/decode pairs.

Rows of pairs come last and say what the decoder takes (`heliotrope.decide.estimate`); they are completed in place, and
priced by side in `heliotrope.decide.pricing`.
"""

import numpy as np

from heliotrope.decide.candidates import Candidates, FloatColumn, PrefillPairs
from heliotrope.decide.columns import Columns


def add_prefills(
    columns: Columns, candidates: Candidates, pairs: PrefillPairs, rtt_seconds: FloatColumn
) -> FloatColumn:
    """Add what the prefillers take to latencies and joules.

    Errors of the two TTFTs are independent, those of their energies are taken to be alike.

    Args:
        columns: with the decoders' part, transfers included.
        candidates: all plans.
        pairs: the last of them.
        rtt_seconds: per plan; TTFT has it already, its relative error is of the rest.

    Returns:
        Per plan, the joules that are drawn where it prefills, if that is elsewhere; else 0.
    """
    from heliotrope.decide import phase_kernel as k

    drawn = np.zeros(len(candidates))
    k.add_prefills(
        columns.table,
        candidates.aggregated_count,
        candidates.transfer_seconds,
        rtt_seconds,
        pairs.prefill,
        pairs.rows,
        pairs.tail_seconds,
        pairs.sender_joules,
        drawn,
    )
    return drawn


def occupied_seconds(pairs: PrefillPairs) -> tuple[FloatColumn, FloatColumn]:
    """How long the request is at the prefiller before it comes to the decoder, per pair.

    Also how long it occupies the prefiller alone, per prefiller.
    """
    from heliotrope.decide import phase_kernel as k

    return pairs.line(k.TTFT), pairs.prefill[k.BUSY_SECONDS]
