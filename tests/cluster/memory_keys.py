"""`SharedKeys` in this process, which a test can make fail."""

from __future__ import annotations

from krowlspider.cluster.membership import UnansweredError


class MemoryKeys:
    """Keys that keep the contract of the real ones; without an answer while not ``answers``."""

    def __init__(self) -> None:
        self.values: dict[str, str | bytes] = {}
        self.answers = True

    async def get(self, name: str) -> bytes | None:
        self._answer()
        value = self.values.get(name)
        return value.encode() if isinstance(value, str) else value

    async def put(self, name: str, value: str | bytes) -> None:
        self._answer()
        self.values[name] = value

    async def delete(self, name: str) -> None:
        self._answer()
        self.values.pop(name, None)

    async def add(self, name: str, number: int, limit: int) -> int:
        self._answer()
        before = int(self.values.get(name, "0"))
        change = max(-before, min(number, max(0, limit - before)))
        self.values[name] = str(before + change)
        return change

    def _answer(self) -> None:
        if not self.answers:
            raise UnansweredError("it is down")
