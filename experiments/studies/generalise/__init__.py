"""Study of generalisation: trained policies on operators that no policy was trained on (`gensor generalise`)."""
