"""Measured runs beside the cost model: reading published rows, predicting them, and how far off the model is."""
