"""Muon for the matrices of a model: momentum whose singular values are all made about one, so that rare
directions learn as fast as common ones. Looking things up in the context is then learned early."""
import torch

STEPS = 5
A, B, C = 3.4445, -4.7750, 2.0315  # of the quintic that drives singular values towards one


def orthogonal(x):
    """[n][rows][columns]: n matrices at once."""
    wide = x.shape[1] <= x.shape[2]
    x = (x if wide else x.mT).bfloat16()
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(STEPS):
        gram = x @ x.mT
        x = A * x + (B * gram + C * gram @ gram) @ x
    return (x if wide else x.mT).float()


class Muon(torch.optim.Optimizer):
    """Matrices of one shape share their work. Updates are scaled to the size of AdamW's, so that both
    take the same learning rate."""

    def __init__(self, params, lr, weight_decay, momentum=0.95):
        shapes = {}
        for p in params:
            shapes.setdefault(p.shape, []).append(p)
        groups = [{"params": same} for same in shapes.values()]
        super().__init__(groups, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            params, mu = group["params"], group["momentum"]
            grads = torch.stack([p.grad for p in params])
            state = self.state[params[0]]
            if "momentum" not in state:
                state["momentum"] = torch.zeros_like(grads)
            state["momentum"].lerp_(grads, 1 - mu)
            update = orthogonal(grads.lerp(state["momentum"], mu))
            size = 0.2 * max(params[0].shape) ** 0.5
            torch._foreach_mul_(params, 1 - group["lr"] * group["weight_decay"])
            torch._foreach_add_(params, list(update.unbind()), alpha=-group["lr"] * size)
