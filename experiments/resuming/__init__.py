"""Files from which a training resumes: JSON and arrays in one archive, written atomically, read without running code."""
