"""Training of policies: `experiments.train`, its learning curves, validation and checkpoints; trainings in recorded spaces."""
