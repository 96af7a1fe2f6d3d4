"""Stock learners in the environments: their tasks, training with a limit of processor time, and test episodes."""
