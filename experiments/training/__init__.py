"""Training of policies: `experiments.train`, its learning curves, validation and checkpoints; lessons in recorded spaces."""
