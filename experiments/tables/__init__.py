"""Tables of papers, made anew: a module for each table, `<paper>_<table>`, whose function `make` returns tables."""
