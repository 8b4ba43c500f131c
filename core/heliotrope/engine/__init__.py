"""Analytic models of inference engines: how long a step takes and what it draws."""
