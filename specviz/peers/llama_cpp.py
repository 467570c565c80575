"""llama.cpp, where somebody installed `llama-cpp-python`: what a CPU can do with the 4-bit file that our weights came from."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from specviz.peers.base import Answer, Job, Peer


class LlamaCpp(Peer):
    """Llama(model_path=..., n_threads=...).generate(top_k=1): plain decoding of the GGUF file beside the weights."""

    label = "llama.cpp, plain, 4-bit weights"
    packages = ("llama-cpp-python",)
    notes = "llama.cpp computes with the 4-bit weights themselves, so its text may differ from that of the fp32 weights made from them"

    @classmethod
    def missing(cls, job: Job) -> str | None:
        if find_spec("llama_cpp") is None:
            return "llama-cpp-python is not installed (specviz never installs it)"
        if not list(Path(job.source).glob("*.gguf")):
            return f"no GGUF file in {Path(job.source).name}: put the one that the weights came from beside them"
        return None

    def load(self, job: Job) -> None:
        from llama_cpp import Llama

        self.eos, path = frozenset(job.eos), sorted(Path(job.source).glob("*.gguf"))[0]
        self.model = Llama(model_path=str(path), n_ctx=0, n_threads=job.threads, n_threads_batch=job.threads, verbose=False)

    def generate(self, ids: Sequence[int], max_new_tokens: int) -> Answer:
        tokens: list[int] = []
        self.model.reset()  # else the part of the prompt that an earlier call shared would not be read again
        for token in self.model.generate(list(ids), top_k=1, temp=0.0, repeat_penalty=1.0):
            tokens.append(int(token))
            if token in self.eos or len(tokens) == max_new_tokens:
                break
        return Answer(tuple(tokens), len(tokens))
