"""The recurrence of RWKV-7, per head with a state S of hd x hd (row: value, column: key):

    u = S a;   S = S diag(w) + u b' + v k';   y = S r        (a = -kk, b = kk * alpha)

On a GPU one Triton program walks through time with the state in registers. The backward pass walks back:
it undoes each step, S_before = (S - u b' - v k') / w, from a copy of S saved every CHUNK steps; w > 0.545
keeps the division harmless over so few steps.
"""
import torch

CHUNK = 16


def plain(r, w, k, v, a, b):
    """The definition, one step at a time; all inputs [B, T, H, hd]."""
    B, T, H, n = r.shape
    S = r.new_zeros(B, H, n, n)
    out = []
    for t in range(T):
        u = S @ a[:, t].unsqueeze(-1)
        S = (
            S * w[:, t].unsqueeze(-2)
            + u * b[:, t].unsqueeze(-2)
            + v[:, t].unsqueeze(-1) * k[:, t].unsqueeze(-2)
        )
        out.append((S @ r[:, t].unsqueeze(-1)).squeeze(-1))
    return torch.stack(out, 1)


try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

if triton:

    @triton.jit
    def _forward(
        r,
        w,
        k,
        v,
        a,
        b,
        y,
        u,
        saved,
        T,
        H: tl.constexpr,
        N: tl.constexpr,
        ROWS: tl.constexpr,
        CHUNK: tl.constexpr,
    ):
        """Rows of the state are independent, so a program takes ROWS of them."""
        bh, part = tl.program_id(0), tl.program_id(1)
        col, row = tl.arange(0, N), part * ROWS + tl.arange(0, ROWS)
        at = (bh // H) * T * H * N + (bh % H) * N
        S = tl.zeros((ROWS, N), tl.float32)
        for t in range(T):
            rt, wt, kt = tl.load(r + at + col), tl.load(w + at + col), tl.load(k + at + col)
            at_, bt, vt = tl.load(a + at + col), tl.load(b + at + col), tl.load(v + at + row)
            ut = tl.sum(S * at_[None, :], 1)
            S = S * wt[None, :] + ut[:, None] * bt[None, :] + vt[:, None] * kt[None, :]
            tl.store(y + at + row, tl.sum(S * rt[None, :], 1))
            tl.store(u + at + row, ut)
            if (t + 1) % CHUNK == 0:
                base = saved + (bh * (T // CHUNK) + t // CHUNK) * N * N
                tl.store(base + row[:, None] * N + col[None, :], S)
            at += H * N

    @triton.jit
    def _backward(
        r,
        w,
        k,
        v,
        a,
        b,
        u,
        saved,
        dy,
        dr,
        dw,
        dk,
        dv,
        da,
        db,
        T,
        H: tl.constexpr,
        N: tl.constexpr,
        CHUNK: tl.constexpr,
    ):
        bh = tl.program_id(0)
        col = tl.arange(0, N)
        square = col[:, None] * N + col[None, :]
        at = (bh // H) * T * H * N + (bh % H) * N + (T - 1) * H * N
        S = tl.zeros((N, N), tl.float32)
        dS = tl.zeros((N, N), tl.float32)
        for back in range(T):
            t = T - 1 - back
            if (t + 1) % CHUNK == 0:
                S = tl.load(saved + (bh * (T // CHUNK) + t // CHUNK) * N * N + square)
            rt, wt, kt = tl.load(r + at + col), tl.load(w + at + col), tl.load(k + at + col)
            vt, at_, bt = tl.load(v + at + col), tl.load(a + at + col), tl.load(b + at + col)
            ut, dyt = tl.load(u + at + col), tl.load(dy + at + col)
            dS += dyt[:, None] * rt[None, :]
            tl.store(dr + at + col, tl.sum(S * dyt[:, None], 0))
            tl.store(dk + at + col, tl.sum(dS * vt[:, None], 0))
            tl.store(db + at + col, tl.sum(dS * ut[:, None], 0))
            tl.store(dv + at + col, tl.sum(dS * kt[None, :], 1))
            du = tl.sum(dS * bt[None, :], 1)
            S = (S - ut[:, None] * bt[None, :] - vt[:, None] * kt[None, :]) / wt[None, :]
            tl.store(dw + at + col, tl.sum(dS * S, 0))
            tl.store(da + at + col, tl.sum(S * du[:, None], 0))
            dS = dS * wt[None, :] + du[:, None] * at_[None, :]
            at -= H * N

    class _Wkv(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *inputs):
            inputs = [x.contiguous() for x in inputs]
            B, T, H, N = inputs[0].shape
            y, u = torch.empty_like(inputs[0]), torch.empty_like(inputs[0])
            saved = torch.empty(B * H, T // CHUNK, N, N, device=y.device)
            rows = 16
            _forward[(B * H, N // rows)](*inputs, y, u, saved, T, H, N, rows, CHUNK, num_warps=1)
            ctx.save_for_backward(*inputs, u, saved)
            return y

        @staticmethod
        def backward(ctx, dy):
            *inputs, u, saved = ctx.saved_tensors
            B, T, H, N = u.shape
            grads = [torch.empty_like(x) for x in inputs]
            _backward[(B * H,)](
                *inputs, u, saved, dy.contiguous(), *grads, T, H, N, CHUNK, num_warps=4
            )
            return tuple(grads)


def wkv(r, w, k, v, a, b):
    if triton and r.is_cuda and r.shape[1] % CHUNK == 0:
        return _Wkv.apply(r, w, k, v, a, b)
    return plain(r, w, k, v, a, b)


def check(device="cuda"):
    """Largest relative error of the kernel and of its gradients against autograd of `plain` in float64."""
    torch.manual_seed(1)
    B, T, H, N = 3, 64, 2, 64
    make = lambda: torch.randn(B, T, H, N, device=device)
    kk = torch.nn.functional.normalize(make(), dim=-1)
    inputs = [
        make(),
        torch.exp(-0.6065 * make().sigmoid()),
        make() * 0.5,
        make(),
        -kk,
        kk * make().sigmoid(),
    ]
    weight = make()
    results = []
    for function, dtype in ((wkv, torch.float32), (plain, torch.float64)):
        x = [t.detach().to(dtype).requires_grad_() for t in inputs]
        y = function(*x)
        (y * weight).sum().backward()
        results.append([y.detach()] + [t.grad for t in x])
    return [float((p.double() - q).norm() / q.norm()) for p, q in zip(*results)]
