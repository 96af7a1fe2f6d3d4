"""`gensor record`: whole tables of timings; stores; cards of tasks."""
