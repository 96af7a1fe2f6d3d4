"""Published shapes of operators as named data, and the rule that splits all operators into train, validation and test."""
