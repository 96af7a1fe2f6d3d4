"""Trainings in recorded tuning spaces: `gensor train_recorded`, and what studies of transfer train with."""
