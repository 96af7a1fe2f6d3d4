"""Files from which a training resumes: an archive of JSON and arrays, written atomically and read without executing code."""
