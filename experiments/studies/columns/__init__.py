"""Column policies judged by the model before GPU time is spent: the speed of their programs, and the kinds that they write."""
