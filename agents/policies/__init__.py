"""Strategies whose learned policies walk on the construction graph: checkpoints, episodes, beam search, tree search."""
