"""Searches that learn no policy: random, local, annealing, genetic, Droplet, TPE, FlexTensor, Roller, Welder, beams, trees."""
