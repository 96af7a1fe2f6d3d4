"""Training of policies: `gensor train`, its learning curves, validation and checkpoints; trainings in recorded spaces."""
