"""Parts of bench/calibrate_engines.py: measurements, recipes, the paper's anchors, the report."""
