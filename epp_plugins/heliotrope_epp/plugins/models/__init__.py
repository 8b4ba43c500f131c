"""Which model answers: predictors of quality, and bodies that name another model."""
