"""What a client that asks at an address of another API is told: where its base address goes wrong. Pure."""

from collections.abc import Container

OTHERS = (
    ("/v1beta/", "Gemini's API is not offered here"),
    ("/openai/deployments/", "Azure's addresses are not offered here"),
    ("/api/", "Ollama's API is not offered here"),
)
ELSEWHERE = {
    "/v1/conversations": "make the conversation at its provider; its id may then stand in a request to /v1/responses",
    "/v1/responses/compact": "conversations are not compacted here; ask the provider for it",
    "/v1/responses/input_tokens": "ask /v1/messages/count_tokens how many tokens a request has",
    "/v1/batches": "there are no batches here; ask the provider for them",
    "/v1/messages/batches": "there are no batches here; ask the provider for them",
    "/v1/files": "files are kept at a provider; send them inside the request, or upload them there",
    "/v1/audio": "speech is not offered here; ask the provider for it",
    "/v1/images": "images are not drawn here; ask the provider for them",
    "/v1/moderations": "moderation is not offered here; ask the provider for it",
    "/v1/realtime": "live sessions are not offered here; ask the provider for them",
}
"""What the official clients ask of providers and we do not pass on."""


def advice(path: str, known: Container[str]) -> str:
    """For an address where there is nothing; `known` are those where there is something."""
    if f"/v1{path}" in known:
        return f"did you mean /v1{path}? An OpenAI client's base_url ends in /v1"
    if path.startswith("/v1/v1/") and (meant := path.removeprefix("/v1")) in known:
        return f"did you mean {meant}? This client adds /v1 itself: its base_url ends before it"
    for prefix, why in ELSEWHERE.items():
        if path == prefix or path.startswith(f"{prefix}/"):
            return why
    for prefix, why in OTHERS:
        if path.startswith(prefix):
            return f"{why}: use an OpenAI client with a base_url that ends in /v1, or Anthropic's"
    return "see /docs"
