"""The pages: each module makes one kind, from a request, as HTML."""
