"""Estimates that are learned from what was observed. Pure: whoever calls does the I/O, keeps the clock and the process.

On the way of a request: `features` (rows) → `models` (`LearnedModels.predict`), over `forest`, `walk`, `conformal` and
`regimes`. Beside it: `sample` (what may be learned from) → `window` and `trainingset` (what is remembered) → `training`
(a candidate, in another process) → `promotion` (has it earned its place) → `bundle` (the file); `drift` says when a
model no longer holds and who answers instead, `schedule` when to train again. `output_length` is on its own.
"""
