"""Producers: what is learned per request and used by scorers and the carbon picker."""
