"""The one door: declarations of operators, and the tensor that goes through them."""
