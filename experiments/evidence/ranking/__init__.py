"""Ranking of measured programs by the model of a GPU: data, scores and page."""
