"""Error messages for clients that call another API's path: how to correct their base URL. Pure."""

import re
from collections.abc import Container

GEMINI = (
    "of Gemini's API, models, generateContent, streamGenerateContent, countTokens, embedContent and batchEmbedContents "
    "are offered; for files, caches and other things stored at Google ask Google, or send them in the request"
)
OLLAMA = "/api/"
BARE = ("/", "/v1", "/v1/")
SLASHES = re.compile("/{2,}")
LONGEST = 64
"""An upper bound on the length of our own paths, in characters; strangers send paths of tens of thousands."""
GEMINIS = ("/v1beta/", "/v1beta1/", "/v1alpha/", "/upload/")
"""Path prefixes of Google's clients; `/v1/` is one of its API versions too."""
GEMINIS_AT_V1 = tuple(
    f"/v1/{name}" for name in ("cachedContents", "corpora", "interactions", "operations", "tunedModels")
)
OTHERS = (
    (OLLAMA, "Ollama's API is not offered here"),
    ("/generate", "text-generation-inference's API is not offered here"),
)
ELSEWHERE = {
    "/v1/audio": "for audio there are /v1/audio/speech, /v1/audio/transcriptions and /v1/audio/translations",
    "/v1/images": "for images there are /v1/images/generations and /v1/images/edits",
    "/v1/realtime": "live sessions are not offered here; ask the provider for them",
    "/v1/live": "live sessions are not offered here; ask the provider for them",
    "/v1/videos": "videos are not offered here; ask the provider for them",
    "/v1/fine_tuning": "fine-tuning is not offered here; ask the provider for it",
    "/v1/uploads": "upload a batch's requests in one piece to /v1/files; other files go into the request itself",
    "/v1/vector_stores": "vector stores are not offered here; search elsewhere, and send the results in the request",
    "/v1/containers": "containers are not offered here; ask the provider for them",
    "/v1/evals": "models are evaluated by `breakeven evaluate`; for the provider's own evals, ask the provider",
    "/v1/skills": "skills are not offered here; put their instructions into the request",
    "/v1/assistants": "there are no assistants here; /v1/responses takes instructions and tools",
    "/v1/threads": "there are no threads here; /v1/conversations keeps the turns of /v1/responses",
}
"""Paths of the official clients that we do not pass on."""


def is_ollamas(path: str) -> bool:
    """Whether this is a path of Ollama's clients, which display an `error` only if it is a string."""
    return path.startswith(OLLAMA) and not path.startswith(f"{OLLAMA}v1/")


def advice(path: str, known: Container[str]) -> str:
    """A hint for a path that does not exist; `known` are the paths that do."""
    if path in BARE:
        return "see /docs; of Hugging Face's client, only chat_completion works here"
    if (meant := SLASHES.sub("/", path)) != path and meant in known:
        return f"did you mean {meant}? The base_url must not end with a slash"
    for prefix, why in ELSEWHERE.items():
        if path == prefix or path.startswith(f"{prefix}/"):
            return why
    if (meant := _behind_another(path, known)) is not None:
        return f"did you mean {meant}? An OpenAI client's base_url must end in /v1, an Anthropic client's before it"
    if path.startswith((*GEMINIS, *GEMINIS_AT_V1)):
        return GEMINI
    before, _, rest = path.rpartition("/v1/")
    if before and (meant := f"/v1/{rest}") in known:
        if before == "/v1":
            return f"did you mean {meant}? This client adds /v1 itself: leave it out of the base_url"
        return f"did you mean {meant}? The base_url must have no path before /v1"
    others = next((why for at, why in OTHERS if path.startswith(at)), None)
    if others is None:
        return "see /docs"
    return f"{others}: use an OpenAI client with a base_url that ends in /v1, or an Anthropic client"


def _behind_another(path: str, known: Container[str]) -> str | None:
    """The intended path if the base_url is itself one of our endpoints, as in `/v1/messages/v1/messages`."""
    for place in range(1, min(len(path), LONGEST)):
        if path[place] == "/" and path[:place] in known:
            rest = path[place:]
            return next((meant for meant in (rest, f"/v1{rest}") if meant in known), None)
    return None
