"""Choose hyperparameter values of strategies on train and validation operators."""
