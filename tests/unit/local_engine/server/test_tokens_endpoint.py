"""Tokens there and back, as vLLM tells them."""

import httpx

from tests.unit.local_engine.asking import HI, VOCABULARY, chat


async def test_tokens_there_and_back(client: httpx.AsyncClient) -> None:
    cut = (await client.post("/tokenize", json={"prompt": "naïve", "return_token_strs": True})).json()
    assert cut["token_strs"] == ["n", "a", "Ã", "¯", "v", "e"], "as the vocabulary has them"
    assert cut["count"] == len(cut["tokens"]) == len(cut["token_strs"]) == 6
    assert cut["max_model_len"] == 128
    assert (await client.post("/detokenize", json={"tokens": cut["tokens"]})).json() == {"prompt": "naïve"}
    assert (await client.post("/tokenize", json={"content": "naïve"})).json()["tokens"] == cut["tokens"]
    assert (await client.post("/tokenize", json={"prompt": "naïve"})).json() == cut | {"token_strs": None}
    messages = (await client.post("/tokenize", json={"messages": HI["messages"]})).json()
    assert messages["count"] == (await chat(client))["usage"]["prompt_tokens"]
    info = (await client.get("/tokenizer_info")).json()
    assert (info["bos_token"], info["eos_token"], info["pad_token"]) == ("<s>", "</s>", None)
    assert "messages" in info["chat_template"]
    for path, body in (("tokenize", {}), ("detokenize", {"tokens": [VOCABULARY]}), ("detokenize", {"tokens": [-1]})):
        assert (await client.post(f"/{path}", json=body)).status_code == 400
