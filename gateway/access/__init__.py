"""Who may do what: virtual keys and roles."""
