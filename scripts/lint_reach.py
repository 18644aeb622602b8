"""Holds the joints of the source tree: which module may touch what of another.

Four rules, read from the syntax trees of `src`, without importing anything:

- private: a private name (`other._name`, `self._name`, `from module import _name`) is used only in the module that
  defines it. A class that reaches into the private part of a base class in another module breaks this rule, too.
- write: an attribute of a class is assigned only in the module of that class. A property with a setter is part of a
  class's interface: every module may assign it. So are the fields of messages, which a stub file declares
  (`wire/messages.pyi`), in modules that import that module: a message is filled in by the code that answers.
- cycle: modules do not import each other in a circle, be it at the top, inside functions or for types alone.
- late import: an import inside a function has a comment beside it or above it that says why it is there, or its module
  has one for all of them: `# Imports inside functions: ` and the reason.

Syntax has no types, so an attribute belongs to the modules whose classes define one of that name. What the module
itself defines is its own; what no module of `src` defines belongs to a library. Where another class happens to have an
attribute of the same name, the line says what it assigns instead: `context.options = flags  # reach: an SSLContext`.
"""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Documented by the standard library in spite of the underscore.
PUBLIC_IN_SPITE = frozenset({"_replace", "_asdict", "_fields", "_make", "_exit", "_field_defaults"})


@dataclass(frozen=True, order=True)
class Finding:
    module: str
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.rule}: {self.text}"


@dataclass
class Module:
    """One file: its tree, its lines, and the attributes that its classes define."""

    name: str
    tree: ast.Module
    lines: list[str]
    is_package: bool
    defined: set[str] = field(default_factory=set)
    """Attributes of its classes, and the names at its top level."""
    setters: set[str] = field(default_factory=set)
    filled_in: set[str] = field(default_factory=set)
    """Fields of the messages that its stub file declares."""
    assigned_by_classes: set[str] = field(default_factory=set)


def load(source: Path) -> dict[str, Module]:
    """Every module below a directory that holds a package, by its dotted name."""
    modules = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        text = path.read_text()
        module = Module(name, ast.parse(text), text.splitlines(), is_package)
        _collect_definitions(module)
        stub = path.with_suffix(".pyi")
        if stub.exists():
            for node in ast.walk(ast.parse(stub.read_text())):
                if isinstance(node, ast.ClassDef):
                    module.filled_in.update(_class_attributes(node))
        modules[name] = module
    return modules


def _collect_definitions(module: Module) -> None:
    for statement in module.tree.body:
        module.defined.update(_bound_names(statement))
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.ClassDef):
            continue
        attributes = set(_class_attributes(node))
        module.defined |= attributes
        module.assigned_by_classes |= attributes
        for member in node.body:
            if isinstance(member, ast.FunctionDef) and any(
                isinstance(decorator, ast.Attribute) and decorator.attr == "setter"
                for decorator in member.decorator_list
            ):
                module.setters.add(member.name)


def _class_attributes(node: ast.ClassDef) -> Iterator[str]:
    """What a class defines: names in its body, slots, and what its methods assign to `self` or `cls`."""
    for member in node.body:
        yield from _bound_names(member)
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store) and _is_self(inner.value):
            yield inner.attr


def _bound_names(statement: ast.stmt) -> Iterator[str]:
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield statement.name
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                for name in ast.walk(target):
                    if isinstance(name, ast.Name):
                        yield name.id
                if isinstance(target, ast.Name) and target.id == "__slots__":
                    yield from (each.value for each in ast.walk(value) if isinstance(each, ast.Constant))
        case ast.If() | ast.Try():
            for inner in [*statement.body, *statement.orelse]:
                yield from _bound_names(inner)
            for handler in getattr(statement, "handlers", ()):
                for inner in handler.body:
                    yield from _bound_names(inner)


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in PUBLIC_IN_SPITE


def private_uses(modules: dict[str, Module]) -> Iterator[Finding]:
    ours = set().union(*(module.defined for module in modules.values()))
    for module in modules.values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Attribute) and _is_private(node.attr) and node.attr in ours - module.defined:
                yield Finding(module.name, node.lineno, "private", f"{ast.unparse(node)} is defined in another module")
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if _is_private(alias.name) and f"{node.module}.{alias.name}" not in modules:
                        yield Finding(
                            module.name, node.lineno, "private", f"{alias.name} belongs to {node.module} alone"
                        )


def foreign_writes(modules: dict[str, Module]) -> Iterator[Finding]:
    owners: dict[str, set[str]] = defaultdict(set)
    for module in modules.values():
        for attribute in module.assigned_by_classes - module.setters:
            owners[attribute].add(module.name)
    for module in modules.values():
        own = module.assigned_by_classes.union(*(modules[name].filled_in for name in _imported(modules, module)))
        for node in ast.walk(module.tree):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.ctx, (ast.Store, ast.Del))
                and not _is_self(node.value)
                and not _is_private(node.attr)
                and node.attr not in own
                and owners[node.attr]
                and not re.search(r"# reach: \w", module.lines[node.lineno - 1])
            ):
                named = " or ".join(sorted(owners[node.attr])[:3])
                yield Finding(module.name, node.lineno, "write", f"{ast.unparse(node)} is an attribute of {named}")


def late_imports(modules: dict[str, Module]) -> Iterator[Finding]:
    for module in modules.values():
        if any(re.match(r"# Imports inside functions: \w", line) for line in module.lines):
            continue
        seen: set[int] = set()
        for function in ast.walk(module.tree):
            if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            for node in ast.walk(function):
                if not isinstance(node, (ast.Import, ast.ImportFrom)) or node.lineno in seen:
                    continue
                seen.add(node.lineno)
                if not _has_reason(module, node):
                    yield Finding(module.name, node.lineno, "late import", f"{ast.unparse(node)} without a reason")


def _has_reason(module: Module, node: ast.stmt) -> bool:
    """A comment beside the import, or above the block of imports that it belongs to."""
    if re.search(r"#(?! noqa| type:)", module.lines[node.lineno - 1]):
        return True
    above = node.lineno - 2
    while above >= 0 and re.match(r"\s*(from|import) |\s+\w+,$|\s*\)$", module.lines[above]):
        if re.search(r"#(?! noqa| type:)", module.lines[above]):
            return True
        above -= 1
    return above >= 0 and module.lines[above].lstrip().startswith("#")


def import_cycles(modules: dict[str, Module]) -> Iterator[Finding]:
    graph = {name: sorted(set(_imported(modules, module)) - {name}) for name, module in modules.items()}
    for circle in _strongly_connected(graph):
        if len(circle) > 1:
            first = min(circle)
            yield Finding(first, 1, "cycle", " <-> ".join(sorted(circle)))


def _imported(modules: dict[str, Module], module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                if submodule in modules:
                    yield submodule
                elif node.module in modules:
                    yield node.module


def _strongly_connected(graph: dict[str, list[str]]) -> list[list[str]]:
    """Tarjan's algorithm; the source tree is shallow enough for recursion."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph[node]:
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            found.append(stack[at:])
            del stack[at:]

    for node in graph:
        if node not in index:
            visit(node)
    return found


def findings_in(source: Path) -> list[Finding]:
    modules = load(source)
    return sorted(
        [*private_uses(modules), *foreign_writes(modules), *late_imports(modules), *import_cycles(modules)],
    )


def main() -> int:
    findings = findings_in(ROOT / "src")
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
