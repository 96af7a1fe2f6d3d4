"""Learned policies that walk, as strategies: checkpoints, sampled episodes, beams and tree search by a policy."""
