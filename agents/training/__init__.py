"""Training and fine-tuning of policies: operators, learning curves, validation, checkpoints."""
