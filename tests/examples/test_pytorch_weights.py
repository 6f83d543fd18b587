"""PyTorch's file: what is in it, the scores that PyTorch recorded, and what its weights are good for."""

from examples.pytorch_weights import FILE, main, network


def test_weights_from_pytorch_give_its_scores_and_learn_sooner() -> None:
    assert FILE.read_bytes()[:4] == b"PK\x03\x04"  # PyTorch's own format
    found = main(steps=10)
    state = found["checkpoint"]["state_dict"]
    assert {name: t.shape for name, t in state.items()} == {name: t.shape for name, t in network().state_dict().items()}
    assert found["checkpoint"]["scores"].abs().max() > 5
    assert found["difference"] < 1e-4
    sooner, later = (found["accuracy"][f"from {what} weights"][-1] for what in ("PyTorch's", "random"))
    assert sooner > 0.9
    assert sooner > later + 0.05
