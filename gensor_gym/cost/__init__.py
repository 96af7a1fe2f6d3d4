"""The analytic cost model, which predicts the time of a program; also the roofline floor and the model's fitted coefficients."""
