"""What several rooms share: the style of figures, and statistics with their uncertainty."""
