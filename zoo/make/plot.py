"""Loss curves as SVG, without a plotting library."""
import math

COLOURS = [
    "#1f6f8b",
    "#c8553d",
    "#588157",
    "#7b4b94",
    "#b8860b",
    "#444444",
    "#d17a9b",
    "#4a90d9",
    "#8c564b",
    "#2ca089",
    "#999933",
]


def curves(series, width=860, height=480):
    """series: {name: [(millions of tokens, nats)]}; both axes logarithmic."""
    left, right, top, bottom = 60, 150, 20, 45
    points = [p for line in series.values() for p in line if p[0] > 0]
    log_range = lambda values: (math.log(min(values)), math.log(max(values)))
    (x0, x1), (y0, y1) = log_range([p[0] for p in points]), log_range([p[1] for p in points])
    x = lambda v: left + (math.log(v) - x0) / ((x1 - x0) or 1) * (width - left - right)
    y = lambda v: height - bottom - (math.log(v) - y0) / ((y1 - y0) or 1) * (height - top - bottom)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for v in (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000):
        if x0 <= math.log(v) <= x1:
            out.append(
                f'<path d="M{x(v):.1f} {top}V{height - bottom}" stroke="#ddd"/>'
                f'<text x="{x(v):.1f}" y="{height - bottom + 16}" text-anchor="middle">{v:g}</text>'
            )
    for v in (0.5, 0.6, 0.7, 0.8, 1, 1.5, 2, 3, 4, 6, 8):
        if y0 <= math.log(v) <= y1:
            out.append(
                f'<path d="M{left} {y(v):.1f}H{width - right}" stroke="#ddd"/>'
                f'<text x="{left - 6}" y="{y(v) + 4:.1f}" text-anchor="end">{v:g}</text>'
            )
    ends = []
    for (name, line), colour in zip(series.items(), COLOURS):
        path = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in line if a > 0)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        ends.append((y(line[-1][1]), name, line[-1][1], colour))
    lowest = height - bottom + 15  # most curves end near the bottom, so names are stacked upwards
    for at, name, value, colour in sorted(ends, reverse=True):
        lowest = min(lowest - 15, at)
        out.append(
            f'<text x="{width - right + 8}" y="{lowest:.1f}" fill="{colour}">{name} {value:.3f}</text>'
        )
    out.append(
        f'<text x="{(left + width - right) / 2}" y="{height - 8}" text-anchor="middle">million tokens</text>'
        f'<text transform="translate(16 {height / 2}) rotate(-90)" text-anchor="middle">held-out stories, nats per token</text></svg>'
    )
    return "\n".join(out) + "\n"
