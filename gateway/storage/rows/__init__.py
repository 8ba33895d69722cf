"""An entry as rows of the database, and back."""
