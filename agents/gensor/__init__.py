"""Gensor's Markov-analysis traverser (arXiv 2502.11407): walks, benefits, descents, and the exactly solved Markov chain."""
