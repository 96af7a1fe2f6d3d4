"""`moves="columns"` of `gensor_gym/Construct-v0`: an action sets a whole column of the program."""
