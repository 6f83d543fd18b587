"""The networks of :mod:`benchmarks.models` as ONNX graphs, written node by node, and what runs them."""

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import machine
from benchmarks.models import Sizes
from benchmarks.workload import Arrays

__all__ = ["Graph", "convolutional_graph", "gpt_graph", "session"]

OPERATORS, FORMAT = 23, 11  # the versions of the operators' set, the first with attention, and of the file


class Graph:
    """A graph of one input and one output, which grows at its end; a value is known by its name.

    Args:
        x: an array of the input's shape and type.
        weights: constants, under their own names.

    Example::

        graph = Graph(x, {"w": w})
        run = session(graph.model(graph.add("Relu", graph.add("MatMul", "x", "w"))))
        y = run(x)
    """

    def __init__(self, x: NDArray[Any], weights: Arrays) -> None:
        self._onnx: Any = importlib.import_module("onnx")
        self._input, self._nodes, self._constants = x, list[Any](), list[Any]()
        for name, array in weights.items():
            self.constant(array, name)

    def constant(self, array: Any, name: str = "") -> str:
        """Add a constant, and return its name."""
        name = name or f"c{len(self._constants)}"
        self._constants.append(self._onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node, and return the name of its first result."""
        return self.split(operator, 1, *inputs, **attributes)[0]

    def split(self, operator: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        """Add a node of several results, and return their names."""
        results = [f"t{len(self._nodes)}.{i}" for i in range(count)]
        self._nodes.append(self._onnx.helper.make_node(operator, inputs, results, **attributes))
        return results

    def model(self, result: str) -> bytes:
        """Return the file of the graph with this result, a matrix of float32.

        Raises:
            onnx.checker.ValidationError: if a node is not what its operator takes.
        """
        onnx = self._onnx
        kind = onnx.helper.np_dtype_to_tensor_dtype(self._input.dtype)
        x = onnx.helper.make_tensor_value_info("x", kind, self._input.shape)
        y = onnx.helper.make_tensor_value_info(result, onnx.TensorProto.FLOAT, (None, None))
        graph = onnx.helper.make_graph(self._nodes, "graph", [x], [y], self._constants)
        operators = [onnx.helper.make_opsetid("", OPERATORS)]
        model = onnx.helper.make_model(graph, ir_version=FORMAT, opset_imports=operators)
        onnx.checker.check_model(model, full_check=True)
        return bytes(model.SerializeToString())


def convolutional_graph(weights: Arrays, x: NDArray[Any]) -> bytes:
    """Return :func:`benchmarks.models.convolutional`, its weights in it."""
    graph = Graph(x, weights)

    def layer(operator: str, name: str, h: str, **attributes: Any) -> str:
        return graph.add(operator, h, f"{name}.weight", f"{name}.bias", **attributes)

    h = "x"
    for name in ("0", "2"):
        h = graph.add("Relu", layer("Conv", name, h))
    h = graph.add("Flatten", graph.add("MaxPool", h, kernel_shape=(2, 2), strides=(2, 2)))
    h = graph.add("Relu", layer("Gemm", "6", h, transB=1))
    return graph.model(layer("Gemm", "8", h, transB=1))


def gpt_graph(weights: Arrays, x: NDArray[Any], sizes: Sizes) -> bytes:
    """Return :func:`benchmarks.models.gpt`, its weights in it; between the blocks, words are rows of one matrix."""
    graph, (batch, context) = Graph(x, weights), x.shape
    rows, words = (graph.constant(np.array(shape)) for shape in ((-1, sizes.width), (batch, context, 3 * sizes.width)))

    def norm(name: str, h: str) -> str:
        return graph.add("LayerNormalization", h, f"{name}.weight", f"{name}.bias", axis=-1, epsilon=1e-5)

    def linear(name: str, h: str) -> str:
        return graph.add("Gemm", h, f"{name}.weight", f"{name}.bias", transB=1)

    def attention(name: str, h: str) -> str:
        qkv = graph.add("Reshape", linear(f"{name}.qkv", h), words)
        heads = {"q_num_heads": sizes.heads, "kv_num_heads": sizes.heads}
        parts = graph.split("Split", 3, qkv, axis=2, num_outputs=3)
        return linear(f"{name}.out", graph.add("Reshape", graph.add("Attention", *parts, is_causal=1, **heads), rows))

    h = graph.add("Add", graph.add("Gather", "words.weight", "x"), "places.weight")
    h = graph.add("Reshape", h, rows)
    for name in (f"blocks.{i}" for i in range(sizes.layers)):
        h = graph.add("Add", h, attention(name, norm(f"{name}.first", h)))
        hidden = graph.add("Gelu", linear(f"{name}.up", norm(f"{name}.second", h)), approximate="tanh")
        h = graph.add("Add", h, linear(f"{name}.down", hidden))
    return graph.model(graph.add("Gemm", norm("norm", h), "head.weight", transB=1))


def session(model: bytes) -> Callable[[NDArray[Any]], Any]:
    """Return a function that runs a model on the processor: from its input to its output."""
    runtime = importlib.import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = machine.threads()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_ALL
    work = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda x: work.run(None, {"x": x})[0]
