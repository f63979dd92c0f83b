from dataclasses import dataclass, field

import attrs


@dataclass
class Book:
    title: str | None = None
    price: float | None = None
    stock: int = 0
    tags: list[str] = field(default_factory=list)


@attrs.define
class Writer:
    name: str
    born: int = attrs.field(converter=int)
