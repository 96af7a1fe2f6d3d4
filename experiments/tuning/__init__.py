"""Choice of strategies' hyperparameters on train and validation operators."""
