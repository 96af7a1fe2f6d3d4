"""Study of stock learners of stable-baselines3 in the environments, trained under a limit of processor time."""
