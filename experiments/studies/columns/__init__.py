"""Column policies judged on the model before GPU time is spent, by the speed and the kinds of the programs that they write."""
