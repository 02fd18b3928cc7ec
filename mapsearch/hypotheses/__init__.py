"""Rules of thumb as hypotheses: each is tried on one model and cluster by searching with and without it."""
