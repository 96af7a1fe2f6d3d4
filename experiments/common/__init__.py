"""Parts that benchmarks, studies and tables share: the style of figures, and statistics with their uncertainty."""
