"""Programs as data: capture, the graph and its text, its meaning."""
