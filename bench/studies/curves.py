"""Curves as SVG: panels side by side, axes with units, a mean with a band from least to most."""
import math
from xml.sax.saxutils import escape

# Told apart by most eyes, on white: Okabe and Ito 2008.
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"]
WIDTH, HEIGHT = 430, 330  # of a panel
LEFT, RIGHT, TOP, BOTTOM = 74, 14, 34, 48


class Curve:
    """`points`: [(x, [values of the seeds])]. A value of None was none; it lies on the upper edge."""

    def __init__(self, name, points):
        self.name, self.points = name, points


class Panel:
    """Values outside `y_range` are cut off at the edge."""

    def __init__(self, title, x_label, y_label, curves, log_x=False, y_range=None):
        self.title, self.x_label, self.y_label = title, x_label, y_label
        self.curves, self.log_x, self.y_range = curves, log_x, y_range


def ticks(low, high, most=6):
    """Round numbers from low to high."""
    if high <= low:
        return [low]
    rough = (high - low) / most
    power = 10 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [round(n * step, 12) for n in range(first, math.floor(high / step + 1e-9) + 1)]


def number(value):
    if abs(value) >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if abs(value) >= 1e4 else f"{value:g}"


class Scale:
    """From the panel's numbers to places in the picture."""

    def __init__(self, panel, left):
        xs = sorted({x for curve in panel.curves for x, _ in curve.points})
        ys = [y for curve in panel.curves for _, values in curve.points for y in values
              if y is not None]
        self.of_x = math.log2 if panel.log_x else float
        self.x_low, self.x_high = self.of_x(xs[0]), self.of_x(xs[-1])
        low, high = panel.y_range or (min(ys), max(ys))
        room = 0 if panel.y_range else 0.04 * (high - low or 1)
        self.y_low, self.y_high = low - room, high + room
        self.left, self.right = left + LEFT, left + WIDTH - RIGHT
        self.top, self.bottom = TOP, HEIGHT - BOTTOM
        self.x_ticks = xs if panel.log_x else ticks(self.x_low, self.x_high)

    def x(self, value):
        share = (self.of_x(value) - self.x_low) / (self.x_high - self.x_low or 1)
        return self.left + share * (self.right - self.left)

    def y(self, value):
        value = self.y_high if value is None else min(max(value, self.y_low), self.y_high)
        share = (value - self.y_low) / (self.y_high - self.y_low)
        return self.bottom - share * (self.bottom - self.top)


def text(x, y, words, anchor="middle", more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(words)}</text>'


def line(x1, y1, x2, y2, colour):
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{colour}" fill="none"/>'


def axes(panel, scale):
    parts = [text((scale.left + scale.right) / 2, 20, panel.title, more=' font-weight="bold"')]
    for value in ticks(scale.y_low, scale.y_high):
        y = scale.y(value)
        parts += [line(scale.left, y, scale.right, y, "#e4e4e4"),
                  text(scale.left - 6, y + 4, number(value), "end")]
    for value in scale.x_ticks:
        x = scale.x(value)
        parts += [line(x, scale.bottom, x, scale.bottom + 4, "#333"),
                  text(x, scale.bottom + 17, number(value))]
    middle = (scale.top + scale.bottom) / 2
    parts += [line(scale.left, scale.top, scale.left, scale.bottom, "#333"),
              line(scale.left, scale.bottom, scale.right, scale.bottom, "#333"),
              text((scale.left + scale.right) / 2, HEIGHT - 12, panel.x_label),
              text(0, 0, panel.y_label, more=f' transform="translate({scale.left - 56:.1f} '
                                             f'{middle:.1f}) rotate(-90)"')]
    return parts


def joined(points):
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def drawn(curve, colour, scale):
    """The band, the mean, and a cross where a seed has no value."""
    places, upper, lower, crosses = [], [], [], []
    for x, values in curve.points:
        there = [scale.y_high if value is None else value for value in values]
        places.append((scale.x(x), scale.y(sum(there) / len(there))))
        upper.append((scale.x(x), scale.y(max(there))))
        lower.append((scale.x(x), scale.y(min(there))))
        if None in values:
            a, b = scale.x(x), scale.y(None)
            crosses.append(f"M{a - 4:.1f} {b - 4:.1f}l8 8m0 -8l-8 8")
    parts = [f'<g class="curve"><title>{escape(curve.name)}</title>',
             f'<polygon points="{joined(upper + lower[::-1])}" fill="{colour}" fill-opacity="0.18"/>',
             f'<polyline points="{joined(places)}" fill="none" stroke="{colour}" stroke-width="2"/>']
    if len(places) <= 12:
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in places]
    if crosses:
        parts.append(f'<path d="{"".join(crosses)}" stroke="{colour}" stroke-width="2"/>')
    return parts + ["</g>"]


def legend(names, width):
    """Rows of names below the panels, and where they end."""
    parts, x, y = [], 20, HEIGHT + 8
    for name, colour in names.items():
        needed = 48 + 7 * len(name)
        if x > 20 and x + needed > width:
            x, y = 20, y + 18
        parts += [f'<path d="M{x} {y}h22" stroke="{colour}" stroke-width="3"/>',
                  text(x + 28, y + 4, name, "start")]
        x += needed
    return parts, y + 16


def svg(panels):
    """The picture; a name has one colour in all panels, and each curve is titled with its name."""
    names = {}
    for panel in panels:
        for curve in panel.curves:
            names.setdefault(curve.name, COLOURS[len(names) % len(COLOURS)])
    body = []
    for place, panel in enumerate(panels):
        scale = Scale(panel, place * WIDTH)
        body += axes(panel, scale)
        for curve in panel.curves:
            body += drawn(curve, names[curve.name], scale)
    width = WIDTH * len(panels)
    row, height = legend(names, width)
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" font-family="sans-serif" font-size="12" '
            f'fill="#222">')
    white = f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
    return "\n".join([head, white, *body, *row, "</svg>", ""])
