"""Values of strategies chosen on train and validation operators."""
