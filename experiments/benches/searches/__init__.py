"""Programs that suites time: what a strategy finds, and the best that is known under the model."""
