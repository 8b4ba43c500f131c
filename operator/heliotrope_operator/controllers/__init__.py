"""One module per kind: a pure function from what is known to the status, and the reconciler around it."""
