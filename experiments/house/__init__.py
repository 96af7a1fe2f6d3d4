"""The shape of the house: folders, statements, arrows of imports, circles, tests, counted from the source."""
