"""What the editor and the form of rules know of YAML and of the published schema. Knows no page."""
