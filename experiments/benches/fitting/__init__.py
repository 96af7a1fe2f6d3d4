"""Model against measured times: samples, fits, ranks."""
