"""Sessions and branches in a store: opening, saving, listing, editing, deleting.

Above the runtime. What a branch holds is the context's; where it is stored, the store's.
"""
