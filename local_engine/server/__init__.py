"""HTTP: requests and answers in OpenAI's wire format."""
