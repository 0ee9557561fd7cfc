"""A model of prefix caching: which blocks at the beginning of a prompt were computed before."""

from collections import OrderedDict

CHARS_A_TOKEN = 4
"""What a token is taken for; a tokenizer would say something near."""
_BLOCK_TOKENS = 16
_BLOCK_CHARS = CHARS_A_TOKEN * _BLOCK_TOKENS


class PrefixCache:
    """Whole blocks of 16 tokens, shared from the very beginning of a prompt, least used first out.

    Like vLLM's on a GPU; its blocks are 128 tokens on a CPU.
    """

    def __init__(self, blocks: int = 65_536) -> None:
        self._most = blocks
        self._known: OrderedDict[int, None] = OrderedDict()

    def cached_tokens(self, prompt: str) -> int:
        """Returns how many leading tokens are known, and knows all of them from now on."""
        hits, chain, missed = 0, 0, False
        for start in range(0, len(prompt) - _BLOCK_CHARS + 1, _BLOCK_CHARS):
            chain = hash((chain, prompt[start : start + _BLOCK_CHARS]))
            if chain in self._known:
                self._known.move_to_end(chain)
                hits += 0 if missed else 1
            else:
                missed = True
                self._known[chain] = None
        while len(self._known) > self._most:
            self._known.popitem(last=False)
        return hits * _BLOCK_TOKENS
