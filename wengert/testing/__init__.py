"""Checks that hold operators to their declarations."""
