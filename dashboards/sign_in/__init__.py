"""Who may see the web UI: sign-in by key or through a company, and the sessions that follow."""
