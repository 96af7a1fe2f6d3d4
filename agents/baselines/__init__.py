"""Searches without a learned policy: random, local, annealing, genetic, Droplet, TPE, FlexTensor, beam, MCTS."""
