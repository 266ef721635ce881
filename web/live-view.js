// What the server does right now: requests that run and wait, the cache, memory, tokens per second
// over the last minute, which the server keeps. Asks once a second, and only while the panel is open
// and the tab can be seen.
import * as api from './api.js';
import { el } from './dom.js';
import { bytes, count, duration, percent, plural } from './format.js';
import { Plot } from './plot.js';

const EVERY = 1000; // ms
const SHOWN = 60; // seconds in the plot

const figure = (name) => {
    const value = el('dd', {}, '–');
    return { value, element: el('div', {}, el('dt', {}, name), value) };
};

export class LiveView {
    // chosen(): the name of the model to show
    constructor(chosen) {
        this.chosen = chosen;
        this.label = 'Server';
        this.icon = 'pulse';
        this.plot = new Plot(
            'Generated tokens per second over the last minute',
            [{ name: 'now', class: 'decode' }],
            SHOWN,
        );
        this.figures = {
            running: figure('Running'),
            queue: figure('Waiting'),
            speed: figure('Tokens/s'),
            kv: figure('KV cache in use'),
        };
        this.meter = el('meter', {
            min: 0,
            max: 1,
            low: 0.8,
            high: 0.95,
            optimum: 0,
            'aria-label': 'KV cache in use',
        });
        this.about = el('dl', { class: 'about' });
        this.problem = el('p', { class: 'error', hidden: true });
        this.element = el(
            'div',
            { class: 'live' },
            this.problem,
            el(
                'dl',
                { class: 'figures' },
                Object.values(this.figures).map((f) => f.element),
            ),
            this.meter,
            el('h3', {}, 'Tokens per second'),
            this.plot.element,
            el(
                'p',
                { class: 'quiet spread' },
                el('span', {}, `${(SHOWN * EVERY) / 1000} s ago`),
                el('span', {}, 'now'),
            ),
            el('h3', {}, 'Model'),
            this.about,
        );
    }

    shown() {
        this.timer = setInterval(() => this.ask(), EVERY);
        this.ask();
    }

    hidden() {
        clearInterval(this.timer);
    }

    async ask() {
        if (document.hidden) return;
        try {
            this.show(await api.status(AbortSignal.timeout(10 * EVERY)));
            this.problem.hidden = true;
        } catch (error) {
            this.problem.textContent = error.message;
            this.problem.hidden = false;
        }
    }

    show(status) {
        const model = status.models.find((m) => m.model === this.chosen()) ?? status.models[0];
        const { running, kv, tokens_last_minute: history } = model;
        this.figures.running.value.textContent = count(running);
        this.figures.queue.value.textContent = count(status.queue);
        this.figures.speed.value.textContent = count(history.at(-1) ?? 0);
        this.figures.kv.value.textContent = kv.total ? percent(kv.used / kv.total) : '–';
        this.meter.value = kv.total ? kv.used / kv.total : 0;
        this.plot.show([history]);
        const cache = `${count(kv.used)} in use, ${count(kv.idle)} held for reuse`;
        const memory = (n) => (n > 0 ? bytes(n) : '–');
        const rows = [
            ['Name', model.model],
            model.type && ['Type', model.type],
            model.backend && ['Backend', model.backend],
            ['Context', model.n_ctx ? plural(model.n_ctx, 'token') : 'not loaded yet'],
            ['Weights', memory(model.weight_bytes)],
            ['Memory', `${memory(model.memory_bytes)} planned, with cache and buffers`],
            ['Process', `${memory(status.resident_bytes)} resident`],
            ['KV cache', `${plural(kv.total, 'block')}: ${cache}`],
            ['Generated', plural(model.generated_tokens, 'token')],
            ['Uptime', duration(status.uptime_s * 1000)],
            ['Version', status.version],
        ];
        this.about.replaceChildren(
            ...rows
                .filter(Boolean)
                .flatMap(([name, value]) => [el('dt', {}, name), el('dd', {}, value)]),
        );
    }
}
