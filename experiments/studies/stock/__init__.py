"""Stock learners in the environments: tasks, training under a limit of processor time, test episodes."""
