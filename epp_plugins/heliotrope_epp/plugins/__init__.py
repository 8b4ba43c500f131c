"""Plugins of the scheduling pipeline, in llm-d's names: producers → filters → scorers → picker."""
