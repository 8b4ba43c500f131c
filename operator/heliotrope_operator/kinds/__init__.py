"""The kinds that the operator watches and remembers: one module each."""
