"""Questions that are asked of the books: forecasts, budgets, unusual days."""
