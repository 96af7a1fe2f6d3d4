"""Programs that suites time: a strategy's result, and the best known under the model."""
