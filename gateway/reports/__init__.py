"""Reports on the ledger: costs, break-even, what-ifs, forecasts, exports, reconciliation; one file per question."""
