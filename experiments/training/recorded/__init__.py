"""Trainings in recorded tuning spaces: `experiments.train_recorded`, and what studies of transfer train with."""
