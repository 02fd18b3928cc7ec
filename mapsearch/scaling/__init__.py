"""A small run that keeps what a large one has to prove: reduced model, mapping and part of the cluster."""
