"""Two laptops with stores of their own, a hub between them, and one mail: see `main`."""
