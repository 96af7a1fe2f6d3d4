"""The analytic cost model, which predicts the time of a program, the roofline floor, and coefficients of fits."""
