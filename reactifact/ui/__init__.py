"""The inspector: pages in a browser that show what a store holds. `app` has the routes, `serve` the server.

Needs the extra `ui`. Each module beside these makes one kind of page from a database; what a page reads does
not grow with the history, and what could is cut into pieces that a link goes on from.
"""
