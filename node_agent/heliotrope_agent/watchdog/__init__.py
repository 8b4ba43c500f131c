"""The second process: puts everything back when the first hangs or has died."""
