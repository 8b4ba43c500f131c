"""How many replicas where, which engines rest, and when work that can wait starts: pure functions."""
