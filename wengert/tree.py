"""Trees of values: nested lists, tuples, dictionaries and whatever types are registered.

Every transform takes and returns trees: it flattens them to leaves, works on the leaves and builds the same structure
again. Anything that is no registered container is a leaf, ``None`` included.

Example:
    >>> import wengert as wg
    >>> leaves, spec = wg.tree.flatten({"w": 1, "b": (2, 3)})
    >>> leaves
    [1, 2, 3]
    >>> wg.tree.unflatten([v * 10 for v in leaves], spec)
    {'w': 10, 'b': (20, 30)}
"""

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

__all__ = ["Spec", "flatten", "flatten_up_to", "leaves", "map", "paths", "register", "spread", "structure", "unflatten"]


class Container(NamedTuple):
    """How a type of container is taken apart and put together.

    Attributes:
        flatten: container to (children, context). unflatten: (children, context) to container.
        keys: (container) to the name of each child, for messages.
    """

    flatten: Callable[[Any], tuple[Iterable[Any], Any]]
    unflatten: Callable[[Sequence[Any], Any], Any]
    keys: Callable[[Any], Iterable[Any]]


class Spec:
    """The structure of a tree without its leaves; two specs are equal if their trees are alike.

    Attributes:
        kind: the container's type, or None for a leaf. context: what the container remembers (its keys, say).
        children: the specs of its children. count: the number of leaves.

    Example:
        >>> import wengert as wg
        >>> wg.tree.structure({"w": 1, "b": [2, 3]})
        {'w': *, 'b': [*, *]}
    """

    __slots__ = ("children", "context", "count", "kind")

    count: int

    def __init__(self, kind: type[Any] | None, context: Any = None, children: tuple["Spec", ...] = ()) -> None:
        self.kind, self.context, self.children = kind, context, children
        self.count = 1 if kind is None else sum(c.count for c in children)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Spec)
            and self.kind is other.kind
            and self.context == other.context
            and self.children == other.children
        )

    def __hash__(self) -> int:
        return hash((self.kind, self.count, self.children))

    def __repr__(self) -> str:
        if self.kind is None:
            return "*"
        return str(unflatten(["*"] * self.count, self)).replace("'*'", "*")


LEAF = Spec(None)
_containers: dict[type[Any], Container] = {}


def register(
    kind: type[Any],
    flatten: Callable[[Any], tuple[Iterable[Any], Any]],
    unflatten: Callable[[Sequence[Any], Any], Any],
    keys: Callable[[Any], Iterable[Any]] | None = None,
) -> None:
    """Make a type of the user's own a container.

    Args:
        kind: the type. flatten: returns (children, context) of an instance; the context can be compared for equality.
        unflatten: makes an instance of (children, context). keys: the names of the children, for messages.

    Raises:
        ValueError: if the type is registered already.

    Example:
        >>> import wengert as wg
        >>> class Pair:
        ...     def __init__(self, a, b):
        ...         self.a, self.b = a, b
        >>> wg.tree.register(Pair, lambda pair: ((pair.a, pair.b), None), lambda children, _: Pair(*children))
        >>> wg.tree.leaves([Pair(1, 2), 3])
        [1, 2, 3]
    """
    if kind in _containers:
        raise ValueError(f"{kind.__name__} is registered as a container already")
    _containers[kind] = Container(flatten, unflatten, keys or (lambda value: range(len(tuple(flatten(value)[0])))))


def _container(value: Any) -> tuple[type[Any] | None, Container | None]:
    """Return the type that takes a value apart, and how; (None, None) for a leaf."""
    kind = type(value)
    found = _containers.get(kind)
    if found is None and isinstance(value, tuple) and hasattr(value, "_fields"):
        found = NAMED_TUPLE
    if found is None and isinstance(value, tuple) and hasattr(kind, "n_sequence_fields"):
        found = _containers[tuple]
    return (kind, found) if found is not None else (None, None)


NAMED_TUPLE = Container(
    lambda value: (tuple(value), type(value)), lambda children, kind: kind(*children), lambda value: value._fields
)
register(list, lambda v: (v, None), lambda children, _: list(children))
register(tuple, lambda v: (v, None), lambda children, _: tuple(children))
register(dict, lambda v: (v.values(), tuple(v)), lambda children, keys: dict(zip(keys, children, strict=True)), tuple)
register(
    OrderedDict, lambda v: (v.values(), tuple(v)),
    lambda children, keys: OrderedDict(zip(keys, children, strict=True)), tuple,
)  # fmt: skip
register(
    defaultdict, lambda v: (v.values(), (v.default_factory, tuple(v))),
    lambda children, context: defaultdict(context[0], zip(context[1], children, strict=True)), tuple,
)  # fmt: skip
register(deque, lambda v: (v, v.maxlen), deque)


def flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], Spec]:
    """Return the leaves of a tree, in order, and its structure.

    Args:
        tree: any value. is_leaf: called with each container met; True makes it a leaf.
    """
    found: list[Any] = []
    return found, _flatten(tree, found, is_leaf)


def _flatten(tree: Any, found: list[Any], is_leaf: Callable[[Any], bool] | None) -> Spec:
    kind, container = _container(tree)
    if container is None or (is_leaf is not None and is_leaf(tree)):
        found.append(tree)
        return LEAF
    children, context = container.flatten(tree)
    return Spec(kind, context, tuple(_flatten(c, found, is_leaf) for c in children))


def unflatten(leaves: Iterable[Any], spec: Spec) -> Any:
    """Return the tree of a structure with these leaves.

    Raises:
        ValueError: if their number does not fit.
    """
    listed = list(leaves)
    if len(listed) != spec.count:
        raise ValueError(f"a tree of {spec.count} leaves was given {len(listed)}")
    return _unflatten(iter(listed), spec)


def _unflatten(leaves: Any, spec: Spec) -> Any:
    if spec.kind is None:
        return next(leaves)
    children = [_unflatten(leaves, c) for c in spec.children]
    return _containers.get(spec.kind, NAMED_TUPLE).unflatten(children, spec.context)


def leaves(tree: Any) -> list[Any]:
    """Return the leaves of a tree in order.

    Example:
        >>> import wengert as wg
        >>> wg.tree.leaves({"w": 1, "b": (2, [3])})
        [1, 2, 3]
    """
    return flatten(tree)[0]


def structure(tree: Any) -> Spec:
    """Return the structure of a tree.

    Example:
        >>> import wengert as wg
        >>> wg.tree.structure((1, {"a": 2}))
        (*, {'a': *})
    """
    return flatten(tree)[1]


def map(fn: Callable[..., Any], tree: Any, *rest: Any) -> Any:  # noqa: A001 - the name it has in other libraries
    """Return the tree of ``fn`` of each leaf (and of the leaves at the same place in the other trees).

    Raises:
        ValueError: if the other trees are not of the same structure.

    Example:
        >>> import wengert as wg
        >>> wg.tree.map(lambda p, g: p - g, {"w": 3, "b": [1, 2]}, {"w": 1, "b": [1, 1]})
        {'w': 2, 'b': [0, 1]}
    """
    first, spec = flatten(tree)
    others = [flatten_up_to(spec, other, "map()") for other in rest]
    return unflatten([fn(*values) for values in zip(first, *others, strict=True)], spec)


def flatten_up_to(spec: Spec, tree: Any, what: str) -> list[Any]:
    """Return the parts of ``tree`` at the leaves of ``spec``; they may be trees themselves.

    Raises:
        ValueError: beginning with ``what``, if the tree has another structure.

    Example:
        >>> import wengert as wg
        >>> wg.tree.flatten_up_to(wg.tree.structure([0, 0]), [1, (2, 3)], "these")
        [1, (2, 3)]
    """
    found: list[Any] = []
    _up_to(spec, tree, found, what, spec)
    return found


def _up_to(spec: Spec, tree: Any, found: list[Any], what: str, whole: Spec) -> None:
    if spec.kind is None:
        found.append(tree)
        return
    kind, container = _container(tree)
    children, context = container.flatten(tree) if container is not None else ((), None)
    listed = tuple(children)
    if kind is not spec.kind or context != spec.context or len(listed) != len(spec.children):
        raise ValueError(f"{what}: a tree of structure {structure(tree)} does not fit the structure {whole}")
    for child, part in zip(spec.children, listed, strict=True):
        _up_to(child, part, found, what, whole)


def spread(prefix: Any, spec: Spec, what: str, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """Return one value per leaf of ``spec`` from a tree that may stop early: a value counts for all leaves below it.

    Raises:
        ValueError: beginning with ``what``, if it is no such prefix.

    Example:
        >>> import wengert as wg
        >>> wg.tree.spread((0, None), wg.tree.structure(({"w": 1, "b": 2}, 3)), "in_dims")
        [0, 0, None]
    """
    kind, container = _container(prefix)
    if container is None or (is_leaf is not None and is_leaf(prefix)):
        return [prefix] * spec.count
    children, context = container.flatten(prefix)
    listed = tuple(children)
    alike = kind is spec.kind and context == spec.context and len(listed) == len(spec.children)
    if not alike and not (kind in (tuple, list) and spec.kind in (tuple, list) and len(listed) == len(spec.children)):
        raise ValueError(f"{what} {prefix!r} does not fit a tree of structure {spec}")
    return [v for part, child in zip(listed, spec.children, strict=True) for v in spread(part, child, what, is_leaf)]


def paths(tree: Any) -> list[str]:
    """Return where each leaf stands, such as ``['w'][0]``, for messages.

    Example:
        >>> import wengert as wg
        >>> wg.tree.paths({"w": [1, 2]})
        ["['w'][0]", "['w'][1]"]
    """
    found: list[str] = []
    _paths(tree, "", found)
    return found


def _paths(tree: Any, prefix: str, found: list[str]) -> None:
    _, container = _container(tree)
    if container is None:
        found.append(prefix)
        return
    children, _ = container.flatten(tree)
    for key, child in zip(container.keys(tree), children, strict=True):
        _paths(child, f"{prefix}[{key!r}]", found)
