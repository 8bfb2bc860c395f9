"""Sorts sentences by how similar they are in meaning to the first. The server has the model WordLlama, which the PyPI
package wordllama carries: a vector of 256 numbers for each of 32000 tokens; a sentence is the mean of its tokens.

pip install wordllama
cd examples/python
python -m shared_tensor.server embeddings:provider &

The caller needs no model:

python embeddings.py "I forgot my password." "How can I log in again?" "The train to Bern is late."
"""

import functools
import importlib.metadata
import sys
from typing import Any

import torch
from shared_tensor import SharedTensorProvider

provider = SharedTensorProvider()


@functools.cache
def load_model() -> tuple[Any, torch.nn.EmbeddingBag]:
    """The tokenizer and the vectors of WordLlama."""
    from safetensors.torch import load_file
    from tokenizers import Tokenizer

    package = importlib.metadata.distribution("wordllama")
    tokenizer = Tokenizer.from_file(str(package.locate_file("wordllama/tokenizers/l2_supercat_tokenizer_config.json")))
    weights = load_file(package.locate_file("wordllama/weights/l2_supercat_256.safetensors"))
    return tokenizer, torch.nn.EmbeddingBag.from_pretrained(weights["embedding.weight"].float(), mode="mean")


@provider.share()
def embed(sentences: list[str]) -> torch.Tensor:
    """A row of 256 numbers, of length 1, for each sentence. The product of two rows is their cosine similarity."""
    tokenizer, mean = load_model()
    tokens = [torch.tensor(tokenizer.encode(sentence, add_special_tokens=False).ids) for sentence in sentences]
    ends = torch.tensor([len(ids) for ids in tokens]).cumsum(0)
    with torch.inference_mode():
        vectors = mean(torch.cat(tokens), torch.cat([torch.zeros(1, dtype=torch.int64), ends[:-1]]))
        return torch.nn.functional.normalize(vectors)


if __name__ == "__main__":
    sentences = sys.argv[1:]
    vectors = embed(sentences)
    similarities = vectors[1:] @ vectors[0]
    for index in similarities.argsort(descending=True).tolist():
        print(f"{similarities[index]:5.2f}  {sentences[index + 1]}")
