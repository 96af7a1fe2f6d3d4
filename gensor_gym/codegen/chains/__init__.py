"""C for chains of products such as attention, and for panels (`gensor_gym.chains`); CPUs only."""
