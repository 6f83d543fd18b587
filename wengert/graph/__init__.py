"""Programs as data: capture, the graph and its text, its meaning."""

from wengert.graph.ir import Graph
from wengert.graph.text import show
from wengert.graph.verify import verify

Graph.text = show
Graph.verify = verify
