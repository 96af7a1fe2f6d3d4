"""Networks of common benchmarks in plain torch: the papers' shapes, random weights of a fixed seed, nothing downloaded."""
