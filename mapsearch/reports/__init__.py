"""Renderings of answers: pure functions from typed results to text."""
