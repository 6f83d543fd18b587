"""Write ``examples/digits_0_to_4.pt``: a network that PyTorch trained on the digits 0 to 4 of scikit-learn's set.

Run: python -m tests.peers.record_digits
"""

import torch
from sklearn.datasets import load_digits
from torch.nn import functional as F

from examples.pytorch_weights import CLASSES, FILE, network


def main() -> None:
    """Train, and save the state beside a few images with their scores."""
    torch.manual_seed(0)
    digits = load_digits()
    old = digits.target < CLASSES
    images = torch.tensor(digits.images[old], dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target[old])
    model = network(torch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=400)
    for _ in range(400):
        at = torch.randint(len(labels), (64,))
        maps = torch.eye(2, 3) + 0.1 * torch.randn(64, 2, 3)
        batch = F.grid_sample(
            images[at], F.affine_grid(maps, images[at].shape, align_corners=False), align_corners=False
        )
        optimizer.zero_grad()
        F.cross_entropy(model(batch), labels[at]).backward()
        optimizer.step()
        schedule.step()
    model.eval()
    with torch.no_grad():
        scores = model(images)
        print(f"{(scores.argmax(1) == labels).float().mean():.2%} right of what it was trained on")
    few = images[:20].clone()
    torch.save({"state_dict": model.state_dict(), "images": few, "scores": scores[:20].clone()}, FILE)


if __name__ == "__main__":
    main()
