"""Telling an operator, outside of any page, that a budget nears or passes its end."""
