"""The optimum as a function of one input: limits exactly, other inputs at solved values."""
