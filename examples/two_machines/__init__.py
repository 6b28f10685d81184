"""Two processes work through one stream of orders; either is killed, and every order ends with one mail."""
