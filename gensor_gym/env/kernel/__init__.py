"""The environment of agents that write: tasks, states and actions are text (`gensor_gym/Kernel-v0`)."""
