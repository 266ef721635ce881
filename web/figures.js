// How an answer is made: what is going on while it comes, and what it took when it is there.
import { answerSpeed, readingEta } from './answer.js';
import { el } from './dom.js';
import { count, duration, percent, plural, speed } from './format.js';

// While an answer is being made: waiting, reading the prompt, or how fast it comes.
export function progressNodes(progress, now) {
    if (progress.firstAt !== null) {
        const perSecond = answerSpeed(progress, now);
        return [plural(progress.n, 'token'), perSecond && ` · ${speed(perSecond)}`];
    }
    if (progress.queue) return [`Waiting: number ${progress.queue} in the queue`];
    if (!progress.total) return ['Waiting for the server'];
    const eta = readingEta(progress, now);
    const bar = el('progress', {
        max: progress.total,
        value: progress.done,
        'aria-label': 'Prompt read',
    });
    return [
        bar,
        ` Reading the prompt: ${count(progress.done)} of ${count(progress.total)} tokens`,
        progress.cached > 0 && `, ${count(progress.cached)} from the cache`,
        eta !== null && ` · ${duration(eta)} left`,
    ];
}

const row = (name, value) => [el('dt', {}, name), el('dd', {}, value)];

export function statsNode(stats) {
    if (stats.answer == null && stats.tokens_per_s == null) return null;
    const { cached = 0, reuseEnd: ended } = stats;
    const short = [
        stats.answer != null && plural(stats.answer, 'token'),
        stats.tokens_per_s && speed(stats.tokens_per_s),
        cached > 0 && `${percent(cached / stats.prompt)} of the prompt from the cache`,
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
            row(
                'From the cache',
                plural(cached, 'token') + (ended ? `; reuse ended: ${ended}` : ''),
            ),
            stats.omitted > 0 &&
                row(
                    'Left out',
                    `${plural(stats.omitted, 'message')} at the beginning, for want of room`,
                ),
            stats.queue_ms != null && row('Waited', duration(stats.queue_ms)),
            stats.prefill_ms != null && row('Read the prompt in', duration(stats.prefill_ms)),
            stats.decode_ms != null && row('Answered in', duration(stats.decode_ms)),
            row('Seed', String(stats.seed)),
        ),
    );
}
