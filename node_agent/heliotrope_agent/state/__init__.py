"""What the GPUs were before the first change, on disk, and who may change them."""
