"""What is kept of answers: under idempotency keys, in the response cache, for who goes on from them or in
conversations, and of keys that opted in."""
