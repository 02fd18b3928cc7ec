"""Pipelines run operation by operation: the order of every schedule, a simulator, and the pipeline of a mapping."""
