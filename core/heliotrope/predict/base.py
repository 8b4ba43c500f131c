"""What a request takes, linear in what its steps have to do: the base that trees correct. Import it where first needed.

    TTFT = d · (c0 + c1 B + c2 K) + p · c3 + N · c4 + R · c5 + S · c6 - e
    TPOT = c0 + c1 B' + c2 (K + n) + r · c3 + r B' · c4
    joules = c0 + u · c1 + u² · c2 + m / B' · c3 + m · c4 + m (n + m / 2) · c5

with what `heliotrope.engine.model` takes for a step. TTFT: d decode steps and p prefill steps end before the first
token, the running one included, which began e seconds ago; they prefill N tokens of R prompts with S = Σ n², this one's
included; B sequences with K tokens decode. Without a running step d = 0; where its phase is unknown, half of a decode
step is left. TPOT: B' is the batch with this request, n its prompt, and r the prompt tokens that the engine computes
per second, whose prefills stall the batch. Joules: u uncached tokens, m tokens of the answer.
"""

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from heliotrope.compiled import compiled
from heliotrope.predict.costs import TERMS
from heliotrope.predict.features import FloatColumn, Matrix, column_of
from heliotrope.predict.steps_ahead import steps_ahead
from heliotrope.predict.targets import Target

_PROMPT = column_of("prompt_tokens")
_UNCACHED = column_of("uncached_tokens")
_OUTPUT = column_of("expected_output_tokens")
_RUNNING = column_of("running")
_WAITING = column_of("waiting")
_WAITING_TOKENS = column_of("waiting_tokens")
_SQUARED = column_of("waiting_squared_tokens")
_KV = column_of("kv_tokens")
_BATCH = column_of("batch")
_STEP_SECONDS = column_of("step_seconds")
_STEP_PREFILLS = column_of("step_prefills")
_PROMPT_RATE = column_of("recent_prompt_tokens_per_second")
_DECODE_BASE = column_of("decode_base_seconds")
_DECODE_PER_REQUEST = column_of("decode_seconds_per_request")
_PREFILL_BASE = column_of("prefill_base_seconds")
_PREFILL_PER_TOKEN = column_of("prefill_seconds_per_token")


class Law(IntEnum):
    """Which of the three formulas holds."""

    NONE = -1
    TTFT = 0
    TPOT = 1
    REQUEST_ENERGY = 2


LAW_OF = {Target.TTFT: Law.TTFT, Target.TPOT: Law.TPOT, Target.REQUEST_ENERGY: Law.REQUEST_ENERGY}
_TTFT, _TPOT = int(Law.TTFT), int(Law.TPOT)


@compiled
def write_terms(law: int, row: FloatColumn, terms: FloatColumn) -> float:
    """Write what each coefficient is multiplied by, and give what is subtracted; NaN where something is unknown."""
    terms[:] = 0.0
    uncached = max(row[_UNCACHED], 1.0)
    if law == _TTFT:
        decodes, prefills, elapsed = steps_ahead(row[_RUNNING] + row[_WAITING], row[_STEP_SECONDS], row[_STEP_PREFILLS])
        terms[0] = decodes
        terms[1] = decodes * row[_RUNNING]
        terms[2] = decodes * row[_KV]
        terms[3] = prefills
        terms[4] = row[_WAITING_TOKENS] + uncached
        terms[5] = row[_WAITING] + 1.0
        terms[6] = row[_SQUARED] + uncached * uncached
        return elapsed
    batch = row[_BATCH]
    if law == _TPOT:
        terms[0] = 1.0
        terms[1] = batch
        terms[2] = row[_KV] + row[_PROMPT]
        terms[3] = row[_PROMPT_RATE]
        terms[4] = row[_PROMPT_RATE] * batch
        return 0.0
    answer = row[_OUTPUT]
    terms[0] = 1.0
    terms[1] = uncached
    terms[2] = uncached * uncached
    terms[3] = answer / max(batch, 1.0)
    terms[4] = answer
    terms[5] = answer * (row[_PROMPT] + 0.5 * answer)
    return 0.0


@compiled
def write_bases(
    rows: Matrix,
    kinds: Matrix,
    laws: NDArray[np.int64],
    begins: NDArray[np.int64],
    fitted_kinds: Matrix,
    coefficients: Matrix,
    bases: Matrix,
) -> None:
    """Write the base of every model and row; NaN where neither coefficients nor, for TTFT, a profile is known.

    Args:
        rows: of requests, shape (n, F).
        kinds: of each row, `heliotrope.predict.costs.kinds_of`.
        laws: `Law` of each model.
        begins: first line of each model's coefficients, and the number of lines behind the last.
        fitted_kinds: kind of each line.
        coefficients: shape (lines, `TERMS`).
        bases: shape (models, n), written to.
    """
    terms, profile = np.empty(TERMS), np.zeros(TERMS)
    for model in range(len(laws)):
        law = laws[model]
        for i in range(rows.shape[0]):
            bases[model, i] = np.nan
            if law < 0:
                continue
            row = rows[i]
            line = -1
            for candidate in range(begins[model], begins[model + 1]):
                same = True
                for j in range(kinds.shape[1]):
                    same = same and fitted_kinds[candidate, j] == kinds[i, j]
                if same:
                    line = candidate
                    break
            if line < 0 and law != _TTFT:
                continue
            offset = write_terms(law, row, terms)
            if line < 0:
                profile[0], profile[1] = row[_DECODE_BASE], row[_DECODE_PER_REQUEST]
                profile[3], profile[4] = row[_PREFILL_BASE], row[_PREFILL_PER_TOKEN]
            total = -offset
            for j in range(TERMS):
                total += terms[j] * (profile[j] if line < 0 else coefficients[line, j])
            if law == _TTFT:
                # However long the running step seems to take, this request's own prefill is still to come.
                uncached = max(row[_UNCACHED], 1.0)
                if line < 0:
                    own = profile[3] + profile[4] * uncached
                else:
                    c = coefficients[line]
                    own = c[3] + c[4] * uncached + c[5] + c[6] * uncached * uncached
                total = max(total, own) if total == total else total
            bases[model, i] = total


def terms_of(target: Target, rows: Matrix) -> tuple[Matrix, FloatColumn]:
    """What each row's coefficients are multiplied by, shape (n, `TERMS`), and what is subtracted."""
    terms, offsets = np.empty((len(rows), TERMS)), np.empty(len(rows))
    _write_all(int(LAW_OF[target]), np.ascontiguousarray(rows, dtype=np.float64), terms, offsets)
    return terms, offsets


@compiled
def _write_all(law: int, rows: Matrix, terms: Matrix, offsets: FloatColumn) -> None:
    for i in range(rows.shape[0]):
        offsets[i] = write_terms(law, rows[i], terms[i])
