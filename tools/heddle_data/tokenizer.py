"""Documents to tokens: bytes, or the tokens of a Hugging Face tokenizer.json."""
import json
import os

from . import Refused

# what tokenizers call the token that ends a document
ENDS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|im_end|>")


class Bytes:
    """A token is a byte of UTF-8."""
    name, size, default_end = "bytes", 256, 0

    def number(self, text, option):
        data = text.encode()
        if len(data) != 1:
            raise Refused(f"{option}={text}: the tokens are bytes; say a byte, or its number")
        return data[0]

    def encode(self, texts):
        return [text.encode() for text in texts]

    def decode(self, tokens):
        return b"".join(bytes([t]) if t < 256 else b"<%d>" % t for t in tokens).decode("utf-8", "replace")


class HuggingFace:
    def __init__(self, path):
        self.path = os.path.join(path, "tokenizer.json") if os.path.isdir(path) else path
        if not os.path.exists(self.path):
            raise Refused(f"--tokenizer={path}: there is no {self.path}; it is a tokenizer.json, a folder with one, or "
                          f"bytes; of a model of the hub: hf download NAME tokenizer.json tokenizer_config.json "
                          f"--local-dir=FOLDER")
        try:
            import tokenizers
        except ImportError:
            raise Refused("--tokenizer needs Hugging Face's package: pip install tokenizers")
        try:
            self.own = tokenizers.Tokenizer.from_file(self.path)
        except Exception as e:  # the package raises plain ones
            raise Refused(f"{self.path} is no tokenizer.json that the package tokenizers reads: {e}")
        self.own.no_truncation()
        self.own.no_padding()
        self.size = max(self.own.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        self.name = self.path

    def named_beside(self):
        """The end of a document by the files beside tokenizer.json; None: they do not say."""
        for name in ("tokenizer_config.json", "special_tokens_map.json"):
            try:
                with open(os.path.join(os.path.dirname(self.path), name), encoding="utf-8") as f:
                    token = json.load(f).get("eos_token")
            except (OSError, ValueError, AttributeError):
                continue
            token = token.get("content") if isinstance(token, dict) else token
            if isinstance(token, str) and self.own.token_to_id(token) is not None:
                return token
        return None

    @property
    def default_end(self):
        named = self.named_beside()
        known = [named] if named else [t for t in ENDS if self.own.token_to_id(t) is not None]
        if len(known) != 1:
            raise Refused(f"{self.path} does not say which token ends a document ({', '.join(known) or 'none'} of the "
                          f"usual names); say --end=TOKEN, or --end=none")
        return self.own.token_to_id(known[0])

    def number(self, text, option):
        token = self.own.token_to_id(text)
        if token is None:
            raise Refused(f"{option}={text}: {self.path} has no such token")
        return token

    def encode(self, texts):
        many = getattr(self.own, "encode_batch_fast", self.own.encode_batch)
        try:
            return [e.ids for e in many(texts, add_special_tokens=False)]
        except Exception as e:  # a vocabulary of words without one for what is unknown
            raise Refused(f"{self.path} has no tokens for a document: {e}")

    def decode(self, tokens):
        return self.own.decode(list(tokens), skip_special_tokens=False)


def tokenizer_of(name):
    return Bytes() if name == "bytes" else HuggingFace(name)
