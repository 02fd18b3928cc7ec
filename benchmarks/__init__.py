"""Benchmarks: commands of `python -m benchmarks.<name>`; a table for people, `--json` for machines."""
