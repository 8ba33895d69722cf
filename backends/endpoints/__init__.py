"""Messages and Responses, translated to chat and back for backends that do not have them."""
