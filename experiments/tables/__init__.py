"""Tables of papers, reproduced. A module for each, `<paper>_<table>`, has a function `make` that returns the tables."""
