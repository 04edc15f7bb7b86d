"""A bar on a terminal: the share of the input that was read, tokens, their rate, the time that is left."""
import sys
import time


class Progress:
    def __init__(self, total):
        self.total, self.start, self.shown, self.on = total, time.monotonic(), 0.0, sys.stderr.isatty()

    def show(self, done, tokens):
        now = time.monotonic()
        if not self.on or now - self.shown < 0.1:
            return
        self.shown = now
        spent, share = max(now - self.start, 1e-3), min(done / self.total, 1) if self.total else 1
        left = int(spent / share * (1 - share)) if share else 0
        eta = f"{left // 3600}:{left // 60 % 60:02d}:{left % 60:02d}" if share else "?"
        bar = ("#" * round(30 * share)).ljust(30)
        sys.stderr.write(f"\r[{bar}] {100 * share:3.0f} %  {tokens:,} tokens  {tokens / spent:,.0f} tok/s  "
                         f"eta {eta}\x1b[K")
        sys.stderr.flush()

    def end(self):
        if self.on and self.shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
        self.on = False
