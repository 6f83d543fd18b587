"""Pictures of graphs: boxes for kernels and lines for values, as SVG, and as text for Graphviz."""

from collections.abc import Iterator, Sequence

from wengert.graph.ir import Graph, Node, Value
from wengert.passes.amounts import amount
from wengert.passes.report import lines, operators
from wengert.passes.traffic import flops_of, kernels_of, traffic_of
from wengert.runtime.picture import Picture, colour

__all__ = ["dot", "svg"]

WIDTH, HEIGHT, GAP, STEP = 190.0, 24.0, 12.0, 56.0  # of a box, between boxes of a layer, and from layer to layer
LONGEST = 30  # characters in a box


def svg(graph: Graph) -> str:
    """Return a picture: what depends on nothing at the top, and each kernel below what it reads.

    What a box says when the mouse rests on it: the operators in the kernel, its shapes, bytes and operations, and the lines
    of the program.

    Example:
        >>> import wengert as wg
        >>> from wengert.compiling.trace import trace
        >>> svg(trace(lambda x: x.sin() + 1)(wg.ones(3)).graph).count("<rect")  # the sheet, an input, two operators
        4
    """
    layers = _layers(graph)
    widest = max((len(layer) for layer in layers), default=0)
    picture = Picture(GAP + widest * (WIDTH + GAP), GAP + len(layers) * STEP)
    places: dict[Value, tuple[float, float]] = {}
    for depth, layer in enumerate(layers):
        left = GAP + (widest - len(layer)) * (WIDTH + GAP) / 2
        for k, item in enumerate(layer):
            x, y = left + k * (WIDTH + GAP), GAP + depth * STEP
            for value in _values(item, before=True):
                picture.line(*places.get(value, (x + WIDTH / 2, y)), x + WIDTH / 2, y)
            name = _short(item)
            picture.box(x, y, WIDTH, HEIGHT, colour(name), f"{name}\n{_details(item)}")
            places.update(dict.fromkeys(_values(item, before=False), (x + WIDTH / 2, y + HEIGHT)))
    return str(picture)


def dot(graph: Graph) -> str:
    """Return a graph in Graphviz's language, with the shapes of values at its edges.

    Example:
        >>> import wengert as wg
        >>> from wengert.compiling.trace import trace
        >>> print(dot(trace(lambda x: x.sin())(wg.ones(3)).graph))
        digraph {
          node [shape=box];
          "%in1" [shape=ellipse];
          "n0" [label="sin"];
          "%in1" -> "n0" [label="float32[3]"];
          "n0" -> "return" [label="float32[3]"];
        }
    """
    return "\n".join(["digraph {", "  node [shape=box];", *_statements(graph), "}"])


def _statements(graph: Graph) -> Iterator[str]:
    makers = {value: f'"%{value.name}"' for value in (*graph.inputs, *graph.constants)}
    yield from (f"  {name} [shape=ellipse];" for name in makers.values())
    for k, node in enumerate(graph.nodes):
        yield f'  "n{k}" [label="{_short(node)}"];'
        for value in dict.fromkeys(node.inputs):
            yield f'  {makers[value]} -> "n{k}" [label="{_form(value)}"];'
        makers.update(dict.fromkeys(node.results, f'"n{k}"'))
    for value in graph.outputs:
        yield f'  {makers[value]} -> "return" [label="{_form(value)}"];'
    for target, value in graph.writes:
        yield f'  {makers[value]} -> "%{target.name}" [label="written", style=dashed, constraint=false];'


def _layers(graph: Graph) -> list[list[Node | Value]]:
    """Return inputs and nodes by the length of the longest way to them."""
    used = graph.uses()
    depth: dict[Value, int] = {value: 0 for value in (*graph.inputs, *graph.constants) if value in used}
    layers: list[list[Node | Value]] = [list(depth)] if depth else []
    for node in graph.nodes:
        here = max((depth[value] + 1 for value in node.inputs), default=0)
        layers += [[] for _ in range(here + 1 - len(layers))]
        layers[here].append(node)
        depth.update(dict.fromkeys(node.results, here))
    return layers


def _values(item: Node | Value, *, before: bool) -> Sequence[Value]:
    if isinstance(item, Value):
        return () if before else (item,)
    return list(dict.fromkeys(item.inputs)) if before else item.results


def _short(item: Node | Value) -> str:
    if isinstance(item, Value):
        return f"{item.name}: {_form(item)}"
    text = operators(item)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _form(value: Value) -> str:
    return f"{value.dtype.name}{list(value.shape)}"


def _details(item: Node | Value) -> str:
    if isinstance(item, Value):
        return _form(item)
    said = [f"{operators(item)}: {', '.join(map(_form, item.inputs))} → {', '.join(map(_form, item.results))}"]
    if kernels_of(item):
        said.append(f"{amount(traffic_of([item]), 'B')}, {amount(flops_of(item))} flops")
    return "\n".join([*said, lines([item])])
