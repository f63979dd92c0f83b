"""The sources of the project, and what each imports."""

import ast
from pathlib import Path


def sources_of(root: Path, *packages: str) -> dict[str, str]:
    """Return the source of every module of some packages, by its dotted name."""
    found = {}
    for path in (each for package in packages for each in (root / package).rglob("*.py")):
        name = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        found[name] = path.read_text(encoding="utf-8")
    return found


def imports_of(source: str) -> set[str]:
    """Return every name that a module imports, those inside functions included."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "relative imports hide where a name comes from"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names
