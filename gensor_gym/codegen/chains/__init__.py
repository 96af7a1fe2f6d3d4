"""C for chains of products (`gensor_gym.chains`)."""
