"""Scorers: how good each endpoint is, in [0, 1]."""
