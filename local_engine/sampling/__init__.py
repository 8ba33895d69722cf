"""From logits to a token: what a request asks for, what a grammar leaves, what is drawn, what is told of it."""
