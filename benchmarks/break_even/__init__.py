"""The break-even report on a synthetic month, with plots, and the measurements behind its claims."""
