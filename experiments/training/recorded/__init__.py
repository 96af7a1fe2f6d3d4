"""Trainings in recorded tuning spaces: `gensor train_recorded`, and the trainings of transfer studies."""
