"""`gensor transfer`: policies trained on the model of one GPU, tested on those of others."""
