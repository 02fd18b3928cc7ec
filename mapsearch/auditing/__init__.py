"""The audit: all collectives of a step routed on the graph of the cluster, against what the level model assumed."""
