"""`gensor report`: one HTML page with all results."""
