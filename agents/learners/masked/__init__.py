"""Learners with action masks: actor-critic, PPO and Q-learning, with their shared policy and buffer."""
