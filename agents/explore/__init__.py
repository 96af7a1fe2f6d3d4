"""A local web page for constructing a program by hand or with a strategy, step by step (`gensor explore`)."""
