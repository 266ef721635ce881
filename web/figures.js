// How an answer is generated: progress while it comes, and figures once it is complete.
import { answerSpeed, prefillEta } from './answer.js';
import { el } from './dom.js';
import { count, duration, percent, plural, speed } from './format.js';

// While an answer is generated: queued, prefill, or its speed.
export function progressNodes(progress, now) {
    if (progress.firstAt !== null) {
        const perSecond = answerSpeed(progress, now);
        return [plural(progress.n, 'token'), perSecond && ` · ${speed(perSecond)}`];
    }
    if (progress.queue) return [`Position ${progress.queue} in the queue`];
    if (!progress.total) return ['Waiting for the server'];
    const eta = prefillEta(progress, now);
    const bar = el('progress', {
        max: progress.total,
        value: progress.done,
        'aria-label': 'Prompt processed',
    });
    return [
        bar,
        ` Processing the prompt: ${count(progress.done)} of ${count(progress.total)} tokens`,
        progress.cached > 0 && `, ${count(progress.cached)} cached`,
        eta !== null && ` · ${duration(eta)} left`,
    ];
}

const row = (name, value) => [el('dt', {}, name), el('dd', {}, value)];

export function statsNode(stats) {
    if (stats.answer == null && stats.tokens_per_s == null) return null;
    const { cached = 0, reuseEnd: ended } = stats;
    const short = [
        stats.model,
        stats.answer != null && plural(stats.answer, 'token'),
        stats.tokens_per_s && speed(stats.tokens_per_s),
        cached > 0 && `${percent(cached / stats.prompt)} of the prompt cached`,
    ];
    return el(
        'details',
        { class: 'stats' },
        el('summary', {}, short.filter(Boolean).join(' · ')),
        el(
            'dl',
            {},
            stats.model && row('Model', stats.model),
            stats.prompt != null && row('Prompt', plural(stats.prompt, 'token')),
            row('Prefix cache', plural(cached, 'token') + (ended ? `; reuse ended: ${ended}` : '')),
            stats.omitted > 0 &&
                row(
                    'No longer sent',
                    `the first ${plural(stats.omitted, 'message')}; the context is full`,
                ),
            stats.queue_ms != null && row('Queued', duration(stats.queue_ms)),
            stats.prefill_ms != null && row('Prefill', duration(stats.prefill_ms)),
            stats.decode_ms != null && row('Decode', duration(stats.decode_ms)),
            row('Seed', String(stats.seed)),
        ),
    );
}
