"""The front door of the compiler."""
