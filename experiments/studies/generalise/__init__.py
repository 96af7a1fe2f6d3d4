"""`gensor generalise`: trained policies on operators that nothing was trained on."""
