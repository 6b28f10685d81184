"""What the verbs share beside `common`: how they name things, and what a terminal gets."""
