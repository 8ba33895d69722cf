"""Names of the columns with a request's figures, in the order of its row and of the sums."""

TOKEN_COLUMNS = (
    "input_tokens",
    "cached_input_tokens",
    "cache_write_5m_tokens",
    "cache_write_1h_tokens",
    "output_tokens",
    "reasoning_tokens",
)
TOOL_COLUMNS = ("web_searches", "file_searches", "other_tool_calls")
PAID_COLUMNS = tuple(
    f"{part}_pico_usd" for part in ("input", "cached_input", "cache_write", "output", "other", "compute")
)
"""What a cost consists of."""
COST_COLUMNS = (*PAID_COLUMNS, "list_pico_usd")
BOUND_COLUMNS = ("lower_pico_usd", "upper_pico_usd")
