"""Sweeps: many searches from one file, on local processes or a Dask cluster, resumable and never done twice."""
