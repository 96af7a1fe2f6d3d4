"""`gensor generalise`: trained policies on operators that no policy was trained on."""
