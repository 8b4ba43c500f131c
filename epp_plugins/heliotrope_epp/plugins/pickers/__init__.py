"""Pickers: which endpoint it is, and the fallbacks."""
