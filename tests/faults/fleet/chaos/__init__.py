"""A fleet under load, parts of which die or freeze at random moments, and what its books must say afterwards."""
