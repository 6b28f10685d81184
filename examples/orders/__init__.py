"""Orders from a CSV file to one mail each: a job on real input that may be killed at any moment."""
