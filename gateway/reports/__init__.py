"""What the books are asked: costs, break-even, what-ifs, forecasts, exports, reconciliation; a file a question."""
