"""What the books are asked: costs, break-even, what-ifs, forecasts, exports, reconciliation; each question is one file."""
