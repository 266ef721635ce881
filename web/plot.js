// A small line plot as SVG: the newest value at the right, the oldest fall off at the left.
import { svg } from './dom.js';
import { count } from './format.js';

const WIDTH = 300,
    HEIGHT = 90,
    FOOT = 4;

// A round number at or above the largest value, for the top line.
export function ceiling(value) {
    const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
    return [1, 2, 5, 10].map((m) => m * power).find((top) => top >= value);
}

export class Plot {
    // series: [{name, class}], n: values that are shown of each
    constructor(label, series, n) {
        this.label = label;
        this.n = n;
        this.lines = series.map(({ name, class: kind }) => ({
            name,
            values: [],
            line: svg('polyline', { class: kind }),
        }));
        this.top = svg('text', { x: 2, y: 11 });
        this.element = svg(
            'svg',
            { class: 'plot', viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img', 'aria-label': label },
            svg('line', { x1: 0, x2: WIDTH, y1: HEIGHT - FOOT, y2: HEIGHT - FOOT }),
            svg('line', { x1: 0, x2: WIDTH, y1: 16, y2: 16 }),
            this.top,
            this.lines.map(({ line }) => line),
        );
    }

    // all: the values of each series, oldest first
    show(all) {
        this.lines.forEach((line, i) => {
            line.values = all[i].slice(-this.n);
        });
        const max = ceiling(Math.max(0, ...this.lines.flatMap(({ values: v }) => v)));
        this.top.textContent = count(max);
        for (const { line, values: v } of this.lines) {
            const points = v.map((value, i) => {
                const x = WIDTH - ((v.length - 1 - i) * WIDTH) / (this.n - 1);
                const y = HEIGHT - FOOT - (value / max) * (HEIGHT - FOOT - 16);
                return `${x.toFixed(1)},${y.toFixed(1)}`;
            });
            line.setAttribute('points', points.join(' '));
        }
        const said = this.lines
            .map(({ name, values: v }) => `${name} ${count(v.at(-1) ?? 0)}`)
            .join(', ');
        this.element.setAttribute('aria-label', `${this.label}: ${said}`);
    }
}
