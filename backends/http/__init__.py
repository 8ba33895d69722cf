"""HTTP to a provider: addresses, connections, responses, events, and how their failures become our errors."""
