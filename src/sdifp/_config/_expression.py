"""Objects as text, in the library's own words: `Adam(1e-3, Cosine(warmup=0.1))`. Read
as a tree of names and numbers; nothing is evaluated."""

import ast
import re
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from .._nearest import match, nearest


class Expression(NamedTuple):
    """A name with its arguments."""

    name: str
    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        parts = [_text(a) for a in self.args]
        parts += [f"{k}={_text(v)}" for k, v in self.kwargs]
        return f"{self.name}({', '.join(parts)})"

    def build(self, lookup: Callable[[str], Callable[..., Any]]) -> Any:
        """The object, from the functions that the names stand for."""
        args = [_build(a, lookup) for a in self.args]
        kwargs = {k: _build(v, lookup) for k, v in self.kwargs}
        return lookup(self.name)(*args, **kwargs)


def parse(
    field: str, text: str, names: Collection[str], inner: Collection[str]
) -> Expression:
    """Read an expression for a field: an object of some names, whose arguments may be
    objects of the inner names."""
    if re.fullmatch(r"[\w-]+", text.strip()):
        return Expression(_known(field, text.strip(), names))
    first = next(iter(names))
    refusal = ValueError(
        f"{field} must be a name with arguments, such as {first}() or "
        f"{first}(name=value), got {text!r}"
    )
    # Names may have hyphens.
    plain = re.sub(r"^\s*[\w-]+", lambda m: m[0].strip().replace("-", "_"), text)
    try:
        tree = ast.parse(plain, mode="eval").body
    except SyntaxError:
        raise refusal from None

    def read(node: ast.expr, names: Collection[str]) -> Any:
        match node:
            case ast.Call(func=ast.Name(id=name)):
                if any(k.arg is None for k in node.keywords):
                    raise refusal
                return Expression(
                    _known(field, name, names),
                    tuple(read(a, inner) for a in node.args),
                    tuple((str(k.arg), read(k.value, inner)) for k in node.keywords),
                )
            case ast.Name(id=name):
                return Expression(_known(field, name, names))
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                return tuple(read(e, inner) for e in elements)
            case ast.UnaryOp(
                op=ast.USub(), operand=ast.Constant(value=int() | float() as value)
            ):
                return -value
            case ast.Constant(value=bool() | int() | float() | str() | None):
                return node.value
            case _:
                raise refusal

    found = read(tree, names)
    if not isinstance(found, Expression):
        raise refusal
    return found


def _known(field: str, name: str, names: Collection[str]) -> str:
    found = match(name, names)
    if found is None:
        raise ValueError(f"{field}: unknown name {name!r}; {nearest(name, names)}")
    return found


def _build(value: Any, lookup: Callable[[str], Callable[..., Any]]) -> Any:
    if isinstance(value, Expression):
        return value.build(lookup)
    if isinstance(value, tuple):
        return tuple(_build(v, lookup) for v in value)
    return value


def _text(value: Any) -> str:
    if isinstance(value, Expression):
        return str(value)
    if isinstance(value, tuple):
        return f"[{', '.join(map(_text, value))}]"
    # A number that is too large is written as one, not as a name.
    return repr(value).replace("inf", "1e999") if type(value) is float else repr(value)
