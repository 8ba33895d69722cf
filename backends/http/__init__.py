"""HTTP to a provider: addresses, connections, answers, events, and what their failures mean."""
