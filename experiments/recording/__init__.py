"""Recording: whole tables of timings (`gensor record`), stores of trials, and cards of tasks."""
