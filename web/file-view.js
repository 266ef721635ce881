// Attached files: folded in a message, and as chips in the composer.
import { countLines } from './attachments.js';
import { el, icon, iconButton } from './dom.js';
import { plural } from './format.js';

const lines = (text) => plural(countLines(text), 'line');

export const foldedFile = ({ name, text }) =>
    el(
        'details',
        { class: 'file' },
        el('summary', {}, icon('file'), el('bdi', {}, name), ` · ${lines(text)}`),
        el('pre', { tabindex: '0', role: 'region', 'aria-label': name }, text),
    );

export const fileChip = ({ name, text }, remove) =>
    el(
        'li',
        {},
        icon('file'),
        el('bdi', {}, name),
        el('span', { class: 'soft' }, lines(text)),
        iconButton('close', `Remove ${name}`, remove),
    );
