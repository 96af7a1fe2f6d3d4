"""Strategies with learned policies that walk on the construction graph: checkpoints, episodes, beam search, tree search."""
