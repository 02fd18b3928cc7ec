"""Explanations: what binds a mapping, and why nothing fits."""
