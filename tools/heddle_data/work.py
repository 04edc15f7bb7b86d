"""Batches to tokens, in processes of their own, and back in the order of the input."""
import array
import collections
import concurrent.futures
import concurrent.futures.process
import multiprocessing
import os
import signal

from . import Refused
from .formats import TYPES
from .texts import documents
from .tokenizer import tokenizer_of


class How:
    """What documents and tokens are: options that workers know, too."""

    def __init__(self, tokenizer, kind, field, split, begin, end):
        self.tokenizer, self.kind, self.field, self.split, self.begin, self.end = \
            tokenizer, kind, field, split, begin, end
        self.pieces = tokenizer == "bytes"


class Done:
    """Tokens of a batch as one array, the lengths of its documents, and what is to be said. The last document goes on
    in the next batch where `ends` is false."""

    def __init__(self, kind):
        self.tokens, self.lengths, self.ends, self.empty, self.inside = array.array(TYPES[kind].code), [], True, 0, 0


held = None  # a worker's tokenizer, and what it was made from


def tokenizer_here(name):
    global held
    if held is None or held[0] != name:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes are as many as there are to be threads
        held = name, tokenizer_of(name)
    return held[1]


def piece(batch):
    how, done = batch.how, Done(batch.how.kind)
    begin = [how.begin] * (how.begin is not None and batch.at == 0)
    end = [how.end] * (how.end is not None and batch.last)
    done.ends, done.inside = batch.last, int(how.end is not None and how.end < 256 and how.end in batch.data)
    done.empty = int(not batch.data and batch.at == 0)
    if not done.empty:
        done.tokens.extend(begin)
        done.tokens.extend(batch.data)
        done.tokens.extend(end)
        done.lengths.append(len(done.tokens))
    return done


def encoded(batch):
    if batch.kind == "piece":
        return piece(batch)
    how, done = batch.how, Done(batch.how.kind)
    texts = documents(batch)
    some = [t for t in texts if t.strip()]
    done.empty = len(texts) - len(some)
    begin, end = ([] if token is None else [token] for token in (how.begin, how.end))
    for ids in tokenizer_here(how.tokenizer).encode(some):
        before = len(done.tokens)
        done.inside += how.end is not None and how.end in ids
        for tokens in (begin, ids, end):
            done.tokens.extend(tokens)
        done.lengths.append(len(done.tokens) - before)
    return done


def started():
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal, which the process that started this one gets, too
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def in_order(batches, jobs):
    """What `encoded` makes of each batch. A few batches a worker are in memory at a time."""
    if jobs == 1:
        yield from map(encoded, batches)
        return
    waiting = collections.deque()
    pool = concurrent.futures.ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), started)
    try:
        for batch in batches:
            waiting.append(pool.submit(encoded, batch))
            if len(waiting) >= 2 * jobs + 2:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except concurrent.futures.process.BrokenProcessPool:
        raise Refused(f"a process that makes tokens was ended from outside, perhaps for want of memory: --jobs with "
                      f"less than {jobs}")
    finally:
        pool.shutdown(cancel_futures=True)
