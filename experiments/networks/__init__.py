"""Networks as the field times them, in plain torch: shapes of the papers, random weights of a fixed seed, no download."""
