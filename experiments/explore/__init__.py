"""A local page on which a program is constructed by hand, or by a strategy step by step (`gensor explore`)."""
