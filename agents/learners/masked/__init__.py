"""Learners that take legal actions alone: actor-critic, PPO and Q-learning, with the policy and buffer that they share."""
