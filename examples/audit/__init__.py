"""An answer that can be audited: where a number comes from, down to the line of a file."""
