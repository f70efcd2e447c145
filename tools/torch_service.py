"""What a service in plain PyTorch looks like, to measure ours against: starlette, a lock, transformers' generate().

Needs the extras `reference` and `serve`. usage: python tools/torch_service.py CHECKPOINT PORT [--threads N]
Answers POST /v1/translate for `text`, `beams` and `max_new_tokens` in the same form as onnxmt does.
"""

from __future__ import annotations

import argparse
import threading
from typing import Any

import torch  # noqa: TID251  a peer, in a process of its own
import transformers  # noqa: TID251
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route


def application(checkpoint: str) -> Starlette:
    """The service of one checkpoint, fp32."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
    lock = threading.Lock()

    def translate(text: str, settings: dict[str, Any]) -> str:
        inputs = tokenizer(text, return_tensors="pt")
        with lock, torch.inference_mode():
            tokens = model.generate(**inputs, **settings)
        return str(tokenizer.decode(tokens[0], skip_special_tokens=True))

    async def answer(request: Request) -> JSONResponse:
        asked = await request.json()
        settings = {"num_beams": asked.get("beams", 1), "max_new_tokens": asked.get("max_new_tokens", 32)}
        text = await run_in_threadpool(translate, asked["text"], settings)
        return JSONResponse({"translations": [{"text": text}]})

    async def live(_request: Request) -> JSONResponse:
        return JSONResponse({"status": "ok"})

    translate("Good morning.", {"num_beams": 1, "max_new_tokens": 8})
    return Starlette(
        routes=[Route("/v1/translate", answer, methods=["POST"]), Route("/readyz", live), Route("/livez", live)]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("port", type=int)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    uvicorn.run(application(options.checkpoint), host="127.0.0.1", port=options.port, log_level="error")


if __name__ == "__main__":
    main()
