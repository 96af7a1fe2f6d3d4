"""Reproduced tables of papers: a module for each table, `<paper>_<table>`, whose function `make` returns tables."""
