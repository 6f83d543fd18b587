"""The front door of the compiler."""

from wengert.compiling.report import report_of
from wengert.graph.ir import Graph

Graph.report = report_of
