"""The model compared with measured times: samples, fits and rank correlations."""
