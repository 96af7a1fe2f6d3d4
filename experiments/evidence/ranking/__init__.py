"""Ranking of executed programs by the model of a GPU: data, scores, page."""
