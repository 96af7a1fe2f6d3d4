"""What is computed together: what a block takes, every change of a plan by one decision, plans by rule."""
