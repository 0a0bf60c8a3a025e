"""Draws mutants from syntax trees: small faults, each one edit at one place of a source; used by mutants.py."""

from __future__ import annotations

import ast
import hashlib
import random
import re
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from itertools import count, zip_longest
from pathlib import Path
from typing import Any

PACKAGE = "src/prol"
TOP = "top"
FLIPPED: dict[type[ast.cmpop], tuple[str, ...]] = {
    ast.Lt: ("<", "<=", ">"),
    ast.LtE: ("<=", "<", ">="),
    ast.Gt: (">", ">=", "<"),
    ast.GtE: (">=", ">", "<="),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
SWAPPED = {ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"), ast.Pow: ("**", "*")}
SWAPPED |= {ast.FloorDiv: ("//", "*"), ast.Mod: ("%", "//")}
HINTS = {"stacklevel", "non_blocking", "pin_memory", "daemon", "strict", "flush", "memory_format", "foreach", "fused"}
HINTS |= {"set_to_none", "maxsize", "timeout", "prefetch_factor", "persistent_workers", "indent", "dynamic"}
NO_SWAP = re.compile(r"(isinstance|issubclass|cast|TypeVar|NewType|(\w*(Error|Warning)))$")
SILENT = re.compile(r"(log|_log|logger|_logger|logging\.\w+(\(.*\))?|warnings)\.(\w+)$|(cast|TypeVar|NewType)$")
GPU = re.compile(r'is_cuda|[!=]= ?"cuda"|torch\.cuda\.(?!is_available|device_count)|\b(on_)?gpu\b')
CPU_FIRST = re.compile(r'!= ?"cuda"|not [\w.\[\]]+\.is_cuda|not \(.*is_cuda')
GPU_ONLY = {"Captured._may_record"}
NO_NUMBER = (ast.JoinedStr, ast.List, ast.Tuple, ast.Dict, ast.ListComp)


@dataclass(frozen=True)
class Edit:
    """Bytes `start` to `end` of a source become `new`."""

    kind: str
    start: int
    end: int
    new: str
    where: str

    def apply(self, source: str) -> str:
        text = source.encode()
        return (text[: self.start] + self.new.encode() + text[self.end :]).decode()


class Finder(ast.NodeVisitor):
    """Collects the edits of one source text."""

    def __init__(self, source: str) -> None:
        self.text = source.encode()
        self.found: list[Edit] = []
        self._starts = [0]
        for line in self.text.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._scopes: list[str] = []
        self._bound: list[set[str]] = [set()]
        self.visit(ast.parse(source))

    def _span(self, node: Any) -> tuple[int, int]:
        return self._starts[node.lineno - 1] + node.col_offset, self._starts[node.end_lineno - 1] + node.end_col_offset

    def _source(self, node: ast.AST) -> str:
        start, end = self._span(node)
        return self.text[start:end].decode()

    def _add(self, kind: str, start: int, end: int, new: str) -> None:
        self.found.append(Edit(kind, start, end, new, ".".join(self._scopes)))

    def _replace(self, kind: str, node: ast.AST, new: str) -> None:
        self._add(kind, *self._span(node), new)

    def _operator(self, kind: str, left: int, right: int, old: str, new: str) -> None:
        between = re.search(re.escape(old).replace(r"\ ", r"\s+").encode(), self.text[left:right])
        if between is not None:
            self._add(kind, left + between.start(), left + between.end(), new)

    def generic_visit(self, node: ast.AST) -> None:
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "bases", "type_comment"):
                continue
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                self._block(value)
            elif isinstance(value, list):
                for part in value:
                    if isinstance(part, ast.AST):
                        self.visit(part)
            elif isinstance(value, ast.AST):
                self.visit(value)

    def _block(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            gpu = self._gpu_statement(statement)
            if not gpu:
                self._drop(statement)
                self.visit(statement)
            for node in ast.walk(statement):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    self._bound[-1].add(node.id)
            if isinstance(statement, ast.If) and self._returns_on_cpu(statement):
                return

    def _returns_on_cpu(self, node: ast.If) -> bool:
        """Only a GPU runs what follows."""
        leaves = isinstance(node.body[-1], (ast.Return, ast.Raise, ast.Continue))
        return leaves and CPU_FIRST.search(self._source(node.test)) is not None

    def _gpu_statement(self, node: ast.stmt) -> bool:
        simple = not hasattr(node, "body")
        return (
            simple and re.search(r"is_cuda|torch\.cuda\.(?!is_available|device_count)", self._source(node)) is not None
        )

    def _drop(self, node: ast.stmt) -> None:
        call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
        if call and SILENT.match(self._source(node.value.func)) and "warnings" not in self._source(node):
            return
        droppable = call or isinstance(node, (ast.AugAssign, ast.Raise, ast.Continue, ast.Break))
        if isinstance(node, ast.Assign):
            (target,) = node.targets if len(node.targets) == 1 else (None,)
            again = isinstance(target, ast.Name) and len(self._scopes) > 0 and target.id in self._bound[-1]
            droppable = again or isinstance(target, (ast.Attribute, ast.Subscript))
        if droppable:
            self._replace("dropped statement", node, "pass")

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._scopes.append(node.name)
        gpu = any(self._gpu_statement(one) for one in node.body) or ".".join(self._scopes) in GPU_ONLY
        if not gpu and not any("overload" in self._source(one) for one in node.decorator_list):
            named = node.args.args + node.args.kwonlyargs + node.args.posonlyargs
            self._bound.append({argument.arg for argument in named})
            self.generic_visit(node)
            self._bound.pop()
        self._scopes.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._scopes.append(node.name)
        self._block(node.body)
        self._scopes.pop()

    def visit_Assign(self, node: ast.Assign) -> None:
        if "__all__" not in self._source(node.targets[0]) and "Literal[" not in self._source(node.value):
            self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        """A message is not mutated."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """Narrows a type for the type checker."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Text for people; Python 3.11 gives no positions in it."""

    def visit_If(self, node: ast.If) -> None:
        test = self._source(node.test)
        if "TYPE_CHECKING" in test or "__name__" in test:
            return
        if GPU.search(test):
            self._block(node.body if CPU_FIRST.search(test) else node.orelse)
        else:
            self._condition(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        test = self._source(node.test)
        if GPU.search(test):
            self.visit(node.body if CPU_FIRST.search(test) else node.orelse)
        else:
            self._condition(node)

    def _condition(self, node: ast.If | ast.IfExp | ast.While) -> None:
        constant = isinstance(node.test, ast.Constant)
        if not constant:
            self._replace("negated condition", node.test, f"not ({self._source(node.test)})")
        self.generic_visit(node)

    visit_While = _condition

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._replace("negated condition", test, f"not ({self._source(test)})")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        if GPU.search(self._source(node)):
            return
        left = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            old, *others = FLIPPED[type(operator)]
            for new in others:
                self._operator("flipped comparison", self._span(left)[1], self._span(right)[0], old, new)
            left = right
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        text = any(isinstance(side, NO_NUMBER) or _is_text(side) for side in (node.left, node.right))
        if type(node.op) in SWAPPED and not text:
            old, new = SWAPPED[type(node.op)]
            self._operator("swapped operator", self._span(node.left)[1], self._span(node.right)[0], old, new)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if type(node.op) in SWAPPED and not isinstance(node.value, NO_NUMBER) and not _is_text(node.value):
            old, new = SWAPPED[type(node.op)]
            self._operator("swapped operator", self._span(node.target)[1], self._span(node.value)[0], old, new)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.USub):
            self._replace("swapped operator", node, self._source(node.operand))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace("flipped boolean", node, str(not node.value))
        elif isinstance(node.value, int):
            self._replace("off by one", node, str(node.value + 1))

    def visit_Slice(self, node: ast.Slice) -> None:
        for bound in (node.lower, node.upper):
            if bound is not None and not isinstance(bound, (ast.Constant, ast.UnaryOp)):
                self._replace("off by one", bound, f"({self._source(bound)}) + 1")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        called = self._source(node.func)
        if SILENT.match(called):
            return
        if not NO_SWAP.search(called) and not any(isinstance(one, ast.Starred) for one in node.args):
            for one, other in zip(node.args, node.args[1:], strict=False):
                first, second = self._source(one), self._source(other)
                if first != second:
                    middle = self.text[self._span(one)[1] : self._span(other)[0]].decode()
                    start, end = self._span(one)[0], self._span(other)[1]
                    self._add("swapped arguments", start, end, second + middle + first)
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg not in HINTS:
            self.generic_visit(node)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))


@dataclass(frozen=True)
class Mutant:
    id: str
    package: str
    file: str
    line: int
    kind: str
    before: str
    after: str
    edit: Edit

    @property
    def record(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "edit"}


def mutants_of(root: Path) -> list[Mutant]:
    """All mutants of the sources below a root, in order of place."""
    found = []
    for file in sorted((root / PACKAGE).rglob("*.py")):
        source, name = file.read_text(encoding="utf-8"), str(file.relative_to(root))
        folders = file.relative_to(root / PACKAGE).parts[:-1]
        seen: Counter[tuple[str, ...]] = Counter()
        for edit in Finder(source).found:
            line, before, after = _lines(source, edit)
            same = (name, edit.where, edit.kind, before, after)
            identity = hashlib.sha256("\0".join((*same, str(seen[same]))).encode()).hexdigest()[:10]
            seen[same] += 1
            found.append(Mutant(identity, folders[0] if folders else TOP, name, line, edit.kind, before, after, edit))
    return found


def _lines(source: str, edit: Edit) -> tuple[int, str, str]:
    """The line of an edit, and its lines before and after, in one."""
    text, mutated = source.encode(), edit.apply(source).encode()
    start = text.rfind(b"\n", 0, edit.start) + 1
    end = (text.find(b"\n", edit.end) + len(text) + 1) % (len(text) + 1)  # len(text) where no line follows
    before, after = text[start:end], mutated[start : end + len(mutated) - len(text)]
    return text.count(b"\n", 0, start) + 1, " ".join(before.decode().split()), " ".join(after.decode().split())


def draw(mutants: list[Mutant], wanted: int, seed: int, stored: tuple[str, ...] = (), least: int = 5) -> list[Mutant]:
    """Mutants by package, in turns; those stored come first and count."""
    packages: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in mutants:
        packages[mutant.package].append(mutant)
    lines = {package: len({(one.file, one.line) for one in those}) for package, those in packages.items()}
    rest, total = max(0, wanted - least * len(packages)), sum(lines.values())
    quotas = {package: least + -(-rest * lines[package] // total) for package in packages}
    turns = [_draw_package(those, quotas[name], f"{seed} {name}", stored) for name, those in sorted(packages.items())]
    return [mutant for turn in zip_longest(*turns) for mutant in turn if mutant is not None]


def _draw_package(mutants: list[Mutant], quota: int, seed: str, stored: tuple[str, ...]) -> list[Mutant]:
    by_id, generator = {mutant.id: mutant for mutant in mutants}, random.Random(seed)
    drawn = [by_id[identity] for identity in stored if identity in by_id]
    lines = {(mutant.file, mutant.line) for mutant in drawn}
    groups, kinds = (sorted({key(one) for one in mutants}) for key in (_group, lambda one: one.kind))
    generator.shuffle(groups)
    generator.shuffle(kinds)
    for turn in count():
        free = [mutant for mutant in mutants if (mutant.file, mutant.line) not in lines]
        if len(drawn) >= quota or not free:
            return drawn
        group, kind = groups[turn % len(groups)], kinds[sum(divmod(turn, len(groups))) % len(kinds)]
        choice = [mutant for mutant in free if _group(mutant) == group and mutant.kind == kind]
        if choice:
            drawn.append(generator.choice(choice))
            lines.add((drawn[-1].file, drawn[-1].line))
    raise AssertionError


def _group(mutant: Mutant) -> str:
    """The packages of the methods take turns."""
    return str(Path(mutant.file).parent) if mutant.package == "methods" else mutant.package
