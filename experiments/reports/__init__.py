"""`gensor report`: one page of everything that was run."""
