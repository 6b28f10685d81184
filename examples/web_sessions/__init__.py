"""A web application on reactifact: a session for each customer, and fifty of them at once."""
