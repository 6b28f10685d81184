"""HTML, for the inspector, audit reports and notebooks: elements with escaped texts, and the one style."""
