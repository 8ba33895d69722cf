"""What the clients talk to: a gateway as users run it, in front of a provider that answers by what it is asked."""
