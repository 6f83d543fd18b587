"""Pictures of graphs: boxes for kernels and lines for values, as SVG, and as text for Graphviz."""

from collections.abc import Iterator

from wengert.graph.ir import Graph, Node, Value
from wengert.passes.amounts import amount
from wengert.passes.report import lines, operators
from wengert.passes.traffic import flops_of, kernels_of, traffic_of
from wengert.runtime.picture import Picture, colour

__all__ = ["dot", "svg"]

WIDTH, HEIGHT, GAP, STEP = 190.0, 24.0, 12.0, 56.0  # of a box, between boxes of a layer, and from layer to layer
LONGEST = 30  # characters in a box


def svg(graph: Graph) -> str:
    """Return a picture: what depends on no other at the top, and each kernel below what it reads.

    What a box says when the mouse rests on it: the operators in the kernel, its shapes, bytes and operations, and the lines
    of the program.

    Example:
        >>> import wengert as wg
        >>> from wengert.compiling.trace import trace
        >>> svg(trace(lambda x: x.sin() + 1)(wg.ones(3)).graph).count("<rect")  # the sheet and two operators
        3
    """
    layers = _layers(graph)
    widest = max((len(layer) for layer in layers), default=0)
    picture = Picture(GAP + widest * (WIDTH + GAP), GAP + len(layers) * STEP)
    places: dict[Node, tuple[float, float]] = {}
    for depth, layer in enumerate(layers):
        left = GAP + (widest - len(layer)) * (WIDTH + GAP) / 2
        for k, node in enumerate(layer):
            x, y = left + k * (WIDTH + GAP), GAP + depth * STEP
            places[node] = x + WIDTH / 2, y + HEIGHT
            for maker in dict.fromkeys(value.node for value in node.inputs):
                if maker is not None:
                    picture.line(*places[maker], x + WIDTH / 2, y)
            picture.box(x, y, WIDTH, HEIGHT, colour(_short(node)), f"{_short(node)}\n{_details(node)}")
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


def _layers(graph: Graph) -> list[list[Node]]:
    """Return the nodes by the length of the longest way to them."""
    depth: dict[Node | None, int] = {None: -1}
    layers: list[list[Node]] = []
    for node in graph.nodes:
        here = depth[node] = max((depth[value.node] + 1 for value in node.inputs), default=0)
        layers += [[] for _ in range(here + 1 - len(layers))]
        layers[here].append(node)
    return layers


def _short(node: Node) -> str:
    text = operators(node)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _form(value: Value) -> str:
    return f"{value.dtype.name}{list(value.shape)}"


def _details(node: Node) -> str:
    said = [f"{operators(node)}: {', '.join(map(_form, node.inputs))} → {', '.join(map(_form, node.results))}"]
    if kernels_of(node):
        said.append(f"{amount(traffic_of([node]), 'B')}, {amount(flops_of(node))} flops")
    return "\n".join([*said, lines([node])])
