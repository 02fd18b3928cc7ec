"""Two pools: training and rollout share a cluster, and the split is part of the search."""
