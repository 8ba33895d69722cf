"""What each provider says on the wire, and how it becomes chat and back."""
