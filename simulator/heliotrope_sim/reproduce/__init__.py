"""Re-runs published studies and prints the paper's figures beside ours."""
