"""How good the learned predictors are: load sweeps on emulated engines, and measurements of others."""
