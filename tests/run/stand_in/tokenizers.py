"""Stands in for Hugging Face's package where that is not installed: a token is a word, and tokenizer.json a list of
words. The word STOP waits for ever, DIE ends the process."""
import json
import os
import re
import time


class Encoding:
    def __init__(self, ids):
        self.ids = ids


class Tokenizer:
    @classmethod
    def from_file(cls, path):
        t = cls()
        with open(path, encoding="utf-8") as f:
            t.words = json.load(f)["words"]
        return t

    def no_truncation(self):
        pass

    no_padding = no_truncation

    def get_vocab(self, with_added_tokens):
        return {w: i for i, w in enumerate(self.words)}

    def token_to_id(self, word):
        return self.words.index(word) if word in self.words else None

    def encode_batch(self, texts, add_special_tokens):
        for text in texts:
            if "STOP" in text:
                open("reached", "w").close()
                time.sleep(10**6)
            if "DIE" in text:
                os._exit(1)
        return [Encoding([self.words.index(w) for w in re.findall(r"\S+", t)]) for t in texts]

    def decode(self, ids, skip_special_tokens):
        return " ".join(self.words[i] for i in ids)
