"""A day of a small cluster in a few minutes: what plays its other controllers, its load, and the record of it."""
